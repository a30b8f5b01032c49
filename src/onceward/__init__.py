"""Exactly-once delivery from PySpark Structured Streaming to systems outside Spark."""
