"""A restored copy made to fit a changed pipeline: state and positions go where the mapping says. No pyspark.

Only ever in a copy that nobody uses yet: a crash leaves a copy that is thrown away. Spark finds an operator's state by
the name of its folder, checks the description inside, and under state format 2 takes the ids of its files from the
commit; a source's position stands in its line of a barrier, its list in its folder. Hadoop's checksum of a file that is
written anew is removed: without one it is not checked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from onceward.operators.empty import Emptiness, put_empty_state
from onceward.operators.mapping import Match, StateMapping
from onceward.operators.read import described
from onceward.operators.record import TopologyLog
from onceward.operators.topology import Operator, SourceInfo
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage

_IDS: Final = "stateUniqueIds"
_AWAY: Final = ".moving-"


def rewrite(root: Path, mapping: StateMapping) -> None:
    """Apply it to the copy in `root`, which holds one decided epoch; the mapping's topology is then the copy's own."""
    logs = SparkLogs(root)
    epoch = logs.decided()
    if not mapping.changes_nothing:
        added = [one.now for one in mapping.operators if one.before is None and one.now is not None]
        emptiness = Emptiness.of(logs.pinned(), epoch + 1)
        for operator in added:
            emptiness.refuse(operator)
        ids = _ids_in(root, epoch)
        _move_state(root, mapping.operators)
        new_ids = {
            one.number: put_empty_state(root / "state" / str(one.number), one, emptiness, with_ids=ids is not None)
            for one in added
        }
        if ids is not None:
            _rewrite_ids(root / "commits" / str(epoch), _mapped_ids(ids, mapping.operators) | new_ids)
        _move_sources(root, mapping.sources)
    TopologyLog(LocalStorage(root / "onceward")).write(mapping.topology, since=epoch + 1)


def _move_state(root: Path, operators: Iterable[Match[Operator]]) -> None:
    """Two may change places, so all leave theirs first."""
    folder = root / "state"
    stays = {one.before.number: one.now.number for one in operators if one.before is not None and one.now is not None}
    gone = [one.before.number for one in operators if one.before is not None and one.now is None]
    for number in gone:
        shutil.rmtree(folder / str(number), ignore_errors=True)
    _renamed(folder, {str(old): str(new) for old, new in stays.items()})
    for old, new in stays.items():
        if old != new:
            for path in _descriptions(folder / str(new)):
                _describe_again(path, old, new)


def _descriptions(folder: Path) -> list[Path]:
    single, versions = folder / "_metadata" / "metadata", folder / "_metadata" / "v2"
    many = [path for path in versions.iterdir() if path.name.isdigit()] if versions.is_dir() else []
    return [*many, *([single] if single.is_file() else [])]


def _describe_again(path: Path, old: int, new: int) -> None:
    """Under its new number; the schema files that it names lie in the folder that was renamed."""
    version = path.read_text().partition("\n")[0]
    document = described(path)
    document["operatorInfo"]["operatorId"] = new
    for store in document["stateStoreInfo"]:
        if "stateSchemaFilePaths" in store:
            store["stateSchemaFilePaths"] = [_moved(str(one), old, new) for one in store["stateSchemaFilePaths"]]
    _write(path, f"{version}\n{_compact(document)}")


def _moved(path: str, old: int, new: int) -> str:
    before, found, after = path.rpartition(f"state/{old}/")
    return f"{before}state/{new}/{after}" if found else path


def _ids_in(root: Path, epoch: int) -> dict[str, Any] | None:
    """Under state format 2 the commit says which files are the state."""
    found = described(root / "commits" / str(epoch)).get(_IDS)
    return found if isinstance(found, dict) and found else None


def _mapped_ids(ids: Mapping[str, Any], operators: Iterable[Match[Operator]]) -> dict[int, Any]:
    kept = ((one.before.number, one.now.number) for one in operators if one.before is not None and one.now is not None)
    return {new: ids[str(old)] for old, new in kept if str(old) in ids}


def _rewrite_ids(path: Path, ids: Mapping[int, Any]) -> None:
    version = path.read_text().partition("\n")[0]
    document = described(path)
    document[_IDS] = {str(number): found for number, found in sorted(ids.items())}
    _write(path, f"{version}\n{_compact(document)}")


def _move_sources(root: Path, sources: tuple[Match[SourceInfo], ...]) -> None:
    """Lists by folder, positions by line: in the order of the pipeline, `-` for one that begins."""
    if not sources:
        return
    kept = {_folder(one.before): _folder(one.now) for one in sources if one.before and one.now}
    for one in sources:
        if one.now is None and one.before is not None:
            shutil.rmtree(root / "sources" / _folder(one.before), ignore_errors=True)
    if (root / "sources").is_dir():
        _renamed(root / "sources", kept)
    for path in (root / "offsets").iterdir():
        if path.name.isdigit():
            _write(path, _with_positions(path.read_text(), sources))


def _folder(one: SourceInfo) -> str:
    return one.name if one.is_named_by_spark and one.name is not None else str(one.number)


def _with_positions(text: str, sources: tuple[Match[SourceInfo], ...]) -> str:
    version, metadata, *lines = text.split("\n")
    now = sorted((one for one in sources if one.now is not None), key=lambda one: one.now.number if one.now else 0)
    if version != "v2":
        return "\n".join([version, metadata, *(_line(lines, one.before) for one in now)])
    positions = dict(line.split(":", 1) for line in lines)
    kept = [(_folder(one.now), positions.get(_folder(one.before))) for one in now if one.now and one.before]
    return "\n".join([version, metadata, *(f"{name}:{position}" for name, position in kept if position is not None)])


def _line(lines: list[str], before: SourceInfo | None) -> str:
    return lines[before.number] if before is not None and before.number < len(lines) else "-"


def _renamed(folder: Path, names: Mapping[str, str]) -> None:
    changed = {old: new for old, new in names.items() if old != new and (folder / old).exists()}
    _each(changed, lambda old, new: (folder / old).rename(folder / f"{_AWAY}{new}"))
    _each(changed, lambda old, new: (folder / f"{_AWAY}{new}").rename(folder / new))


def _each(names: Mapping[str, str], act: Callable[[str, str], object]) -> None:
    for old, new in names.items():
        act(old, new)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
