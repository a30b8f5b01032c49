"""The bridge to Spark: its logs are read in `checkpoint`, its epochs come in `delivery` and are staged in `staging`."""
