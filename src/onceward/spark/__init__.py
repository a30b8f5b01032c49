"""The bridge to Spark: its logs are read in `checkpoint`, its micro-batches are staged in `bridge`."""
