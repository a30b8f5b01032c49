"""How sinks and committers reach a server or a database file: one module for each, with its driver."""
