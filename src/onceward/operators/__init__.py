"""What a query is made of, by name: read from a checkpoint, compared before a start, mapped for a restore.

It stands before *source*: a pipeline whose operators do not fit the state of its checkpoint never starts. No pyspark.
"""

from onceward.operators.guard import refuse_misfit, with_former_names
from onceward.operators.mapping import Match, StateMapping, plan_mapping
from onceward.operators.names import checked_names, with_names
from onceward.operators.read import read_topology
from onceward.operators.record import TopologyLog, TopologyRecord
from onceward.operators.rewrite import rewrite
from onceward.operators.topology import Column, Operator, SourceInfo, Topology

__all__ = [
    "Column",
    "Match",
    "Operator",
    "SourceInfo",
    "StateMapping",
    "Topology",
    "TopologyLog",
    "TopologyRecord",
    "checked_names",
    "plan_mapping",
    "read_topology",
    "refuse_misfit",
    "rewrite",
    "with_former_names",
    "with_names",
]
