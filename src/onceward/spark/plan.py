"""What can be told of a query by its plan, before it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

# Nodes of a logical plan that bring rows of all tasks together.
_SHUFFLING = re.compile(
    r"^\W*(?:Aggregate|Join|Deduplicate\w*|Distinct|Repartition\w*|Rebalance\w*|Sort|Window|\w+WithState\w*)\b",
    re.MULTILINE,
)
# Nodes that keep nothing from one epoch to the next. What is not among them is taken to keep state.
_STATELESS: Final = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "PythonMapInArrow",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SerializeFromObject",
        "StreamingDataSourceV2Relation",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
    }
)


def shuffles(frame: DataFrame) -> bool:
    """Whether rows go from one task to another on their way."""
    return _SHUFFLING.search(frame._jdf.queryExecution().analyzed().toString()) is not None


def node_names(frame: DataFrame) -> Iterator[str]:
    """Of every node of the logical plan."""
    nodes = [frame._jdf.queryExecution().analyzed()]
    while nodes:
        node = nodes.pop()
        yield str(node.nodeName())
        nodes += _children(node)


def keeps_state(frame: DataFrame) -> bool:
    """Whether the query may keep something from one epoch to the next; True where that cannot be told."""
    return _keeps_state(frame._jdf.queryExecution().analyzed())


def _keeps_state(node: Any) -> bool:
    if not node.isStreaming():
        return False
    children = _children(node)
    name = str(node.nodeName())
    # A stream joined with a table keeps nothing; two streams do.
    looks_up = name == "Join" and sum(bool(child.isStreaming()) for child in children) == 1
    return not (looks_up or name in _STATELESS) or any(_keeps_state(child) for child in children)


def _children(node: Any) -> list[Any]:
    found = node.children()
    return [found.apply(number) for number in range(found.size())]
