"""What a query is made of, by name: read from a checkpoint, compared before a start, mapped for a restore.

It stands before *source*: a pipeline whose operators do not fit the state of its checkpoint never starts. No pyspark.
"""

from onceward.operators.read import read_topology
from onceward.operators.record import TopologyLog, TopologyRecord
from onceward.operators.topology import Column, Operator, SourceInfo, Topology

__all__ = [
    "Column",
    "Operator",
    "SourceInfo",
    "Topology",
    "TopologyLog",
    "TopologyRecord",
    "read_topology",
]
