"""Named mutants: each takes one rule out of the real code and must be caught by a fast test. `make mutants` runs them.

`stage`, `decide`, `publish`, `settle`, `recover`, `spark_logs`, `storage`, `targets` and `sqlite_sink` hold the list,
`mutant` says what an entry is, `mutation` applies one to a copy of the sources, `__main__` runs them.
"""
