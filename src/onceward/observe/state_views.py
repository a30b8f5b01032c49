"""What Spark's state can be asked for, operator by operator: all of it, both sides of a join, each variable of a
transformWithState, its timers. Without Spark the views are listed, with it they are read."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from onceward.errors import ConfigurationError
from onceward.operators import Operator, Topology, read_topology
from onceward.operators.read import described, description_of
from onceward.spark.checkpoint import SparkLogs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_TIMERS: Final = "timers"
_NO_TIMERS: Final = "None"


@dataclass(frozen=True, slots=True)
class StateView:
    """One thing to read: an operator, or a part of it. `options` are those of Spark's source `statestore`."""

    operator: Operator
    part: str
    options: Mapping[str, str]

    @property
    def label(self) -> str:
        """For people: the operator's name or kind and number, and the part."""
        name = self.operator.name or f"{self.operator.kind}-{self.operator.number}"
        return f"{name} {self.part}".strip()


def state_views(root: Path, topology: Topology | None = None) -> list[StateView]:
    """Everything there is to read in a checkpoint, or in a copy of one whose `topology` is known from elsewhere."""
    found = topology if topology is not None else read_topology(root)
    return [view for operator in found.operators for view in _views(root, operator)]


def _views(root: Path, operator: Operator) -> Iterator[StateView]:
    base = {"operatorId": str(operator.number)}
    if operator.kind == "symmetricHashJoin":
        yield from (StateView(operator, side, {**base, "joinSide": side}) for side in ("left", "right"))
    elif operator.kind.startswith("transformWithState"):
        properties = _properties(root / "state" / str(operator.number))
        for one in properties.get("stateVariables", ()):
            name = str(one["stateName"])
            if not name.startswith("$"):
                yield StateView(operator, name, {**base, "stateVarName": name})
        if properties.get("timeMode", _NO_TIMERS) not in (_NO_TIMERS, "NoTime"):
            yield StateView(operator, _TIMERS, {**base, "readRegisteredTimers": "true"})
    else:
        yield StateView(operator, "", base)


def _properties(folder: Path) -> dict[str, Any]:
    """What the description of a transformWithState says of its variables, as JSON in JSON."""
    path = description_of(folder)
    found = json.loads(described(path).get("operatorPropertiesJson") or "{}") if path is not None else {}
    return found if isinstance(found, dict) else {}


def chosen(views: list[StateView], operator: str | None) -> list[StateView]:
    """Those of one operator, by its name or number; all of them without one."""
    if operator is None:
        return views
    found = [one for one in views if operator in (one.operator.name, str(one.operator.number))]
    if not found:
        known = dict.fromkeys(one.operator.name or str(one.operator.number) for one in views)
        raise ConfigurationError(
            f"there is no operator {operator!r}", hint=f"give one of: {', '.join(known)}" if known else "there is none"
        )
    return found


def frame_of(spark: SparkSession, root: Path, view: StateView, epoch: int) -> DataFrame:
    """Key and value of every entry at the end of an epoch; of a map the user's key too; of timers when they fire."""
    source = session_for(spark, root, epoch).read.format("statestore")
    frame = source.options(batchId=epoch, **view.options).load(str(plain_path(root)))
    return frame.drop("partition_id")


def session_for(spark: SparkSession, root: Path, epoch: int) -> SparkSession:
    """One that takes the state for what it is, in format 1 or 2: Spark goes by the session's own setting there, and an
    epoch's entry in its logs tells by the ids that only format 2 has."""
    lines = (SparkLogs(root).decision(epoch) or "").splitlines()
    version = "2" if len(lines) > 1 and json.loads(lines[1]).get("stateUniqueIds") else "1"
    if spark.conf.get(_FORMAT, "1") == version:
        return spark
    other = spark.newSession()
    other.conf.set(_FORMAT, version)
    return other


@cache
def plain_path(root: Path) -> Path:
    """A name for the checkpoint that Spark reads state by. It takes a path for a URI there, and looks for a folder with
    `%20` in its name where there is a blank: such a one gets a link, for as long as this process lives."""
    if quote(str(root)) == str(root):
        return root
    folder = tempfile.TemporaryDirectory(prefix="onceward-state-")
    atexit.register(folder.cleanup)
    link = Path(folder.name) / "checkpoint"
    link.symlink_to(root)
    return link


def _flat(frame: DataFrame) -> DataFrame:
    """What is inside of key and value, column by column, named by number. Spark keeps a mark beside each row of a join
    that its schema does not name, and stumbles over it where a whole row is read."""
    from pyspark.sql.types import StructType

    inside = {one.name: isinstance(one.dataType, StructType) for one in frame.schema.fields}
    found = frame.select(*(f"`{name}`.*" if is_struct else f"`{name}`" for name, is_struct in inside.items()))
    return found.toDF(*map(str, range(len(found.columns))))


def state_digests(spark: SparkSession, root: Path, epoch: int) -> dict[str, tuple[int, str]]:
    """For each view how many entries it has and a digest of them that does not depend on their order, nor on which
    partition they are in."""
    from pyspark.sql import functions as F

    found = {}
    for view in state_views(root):
        frame = _flat(frame_of(spark, root, view, epoch))
        hashed = frame.select(F.xxhash64(F.to_json(F.struct(*frame.columns))).cast("decimal(38,0)").alias("h"))
        count, total = hashed.agg(F.count("h"), F.sum("h")).first() or (0, 0)
        found[f"{view.operator.number} {view.part}".strip()] = (int(count), str(total or 0))
    return found
