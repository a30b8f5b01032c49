"""Real Spark: the façade in one session, drivers that are killed, and a standalone cluster."""
