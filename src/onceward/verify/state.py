"""The state beside Spark's logs: every operator, every partition, every store, at the version an epoch needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceward.contracts import Finding, Severity
from onceward.verify.files import Files
from onceward.verify.logs import Entry
from onceward.verify.store_files import Store, plain_problem, store_findings
from onceward.verify.stores import Provider, provider_of

_PREFIX: Final = "spark.sql.streaming.stateStore"
_FIX: Final = "restore the file from a backup"
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator: its stores by name, how many partitions, and the schema files that its description names."""

    number: int
    stores: tuple[str, ...]
    partitions: int
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which state: the version, and what the logs say of how it is kept."""

    version: int
    settings: Mapping[str, Any]
    unique_ids: Mapping[str, Any]

    @classmethod
    def at(cls, version: int, barrier: Entry | None, commit: Entry | None) -> Wanted:
        """From the entries of the epoch that wrote it."""
        settings = (barrier.metadata if barrier else {}).get("conf") or {}
        ids = (commit.metadata if commit else {}).get("stateUniqueIds") or {}
        return cls(version, settings if isinstance(settings, dict) else {}, ids if isinstance(ids, dict) else {})

    @property
    def provider(self) -> Provider | None:
        """What keeps the state; None where it is not one of Spark's own."""
        return provider_of(str(self.settings.get(f"{_PREFIX}.providerClass", "")))

    @property
    def partitions(self) -> int | None:
        """As the barrier has it: an operator's description is not written again when the state is repartitioned."""
        found = self.settings.get("spark.sql.shuffle.partitions")
        return int(str(found)) if str(found).isdigit() else None


def state_findings(files: Files, wanted: Wanted) -> Iterator[Finding]:
    """What keeps Spark from going on with this version of the state."""
    if wanted.version <= 0:
        return
    provider = wanted.provider
    for number in operators_in(files):
        operator, wrong = operator_at(files, number, wanted.version - 1)
        if wrong is not None:
            yield wrong
        if wrong is None or wrong.severity is not Severity.ERROR:
            yield from _schemas(files, operator)
        if provider is None:
            what = "its provider is not one of Spark's own: its files were not looked at"
            yield Finding(f"state/{number}", Severity.WARNING, what, "nothing")
            continue
        yield from _partitions(files, operator, wanted, provider)


@dataclass(frozen=True, slots=True)
class StoreAt:
    """One store of one partition; `unique_id` is that of the wanted version, under state format 2."""

    store: Store
    unique_id: str | None


def stores_at(files: Files, operator: Operator, wanted: Wanted, provider: Provider) -> Iterator[StoreAt | Finding]:
    """Every store of an operator, or what keeps it from being found."""
    root = f"state/{operator.number}"
    codec = str(wanted.settings.get(f"{_PREFIX}.compression.codec", "lz4"))
    ids = wanted.unique_ids.get(str(operator.number))
    count = len(ids) if ids else wanted.partitions or operator.partitions
    present = {int(name) for name in files.names(root) if name.isdigit()}
    # An aggregate without a key has one partition, whatever the settings say.
    count = 1 if present == {0} and not ids else count
    for partition in range(count):
        if partition not in present:
            what = f"partition {partition} of {count} is missing"
            yield Finding(f"{root}/{partition}", Severity.ERROR, what, "restore the folder from a backup")
            continue
        for name in operator.stores:
            folder = f"{root}/{partition}" if name == _DEFAULT else f"{root}/{partition}/{name}"
            unique_id = _id_of(files.names(folder), wanted.version, ids[partition]) if ids else None
            if ids and unique_id is None:
                what = f"version {wanted.version} of the state is missing: none of its files has an id of that commit"
                yield Finding(folder, Severity.ERROR, what, "restore the folder from a backup")
                continue
            yield StoreAt(Store(folder, provider, codec, has_families=bool(operator.schemas)), unique_id)


def _partitions(files: Files, operator: Operator, wanted: Wanted, provider: Provider) -> Iterator[Finding]:
    for found in stores_at(files, operator, wanted, provider):
        if isinstance(found, Finding):
            yield found
        else:
            yield from store_findings(files, found.store, wanted.version, found.unique_id)


def _id_of(names: frozenset[str], version: int, ids: object) -> str | None:
    """Which of a partition's ids is that of this store: a join has four stores and as many ids."""
    for one in ids if isinstance(ids, list) else ():
        if any(name.startswith(f"{version}_{one}.") for name in names):
            return str(one)
    return None


def operators_in(files: Files) -> list[int]:
    """The numbers of the stateful operators."""
    return sorted(int(name) for name in files.names("state") if name.isdigit())


def operator_at(files: Files, number: int, epoch: int) -> tuple[Operator, Finding | None]:
    """Its description: one file, or, in newer formats, one for each start, of which the newest up to `epoch` counts.

    Spark starts without the one file (tried with 4.3: gone, and flipped); it is for those who read the state. Then the
    folders of partition 0 tell the stores. The newer ones name the schema files, without which it does not start.
    """
    base = f"state/{number}/_metadata"
    starts = sorted(int(name) for name in files.names(f"{base}/v2") if name.isdigit() and int(name) <= epoch + 1)
    path = f"{base}/v2/{starts[-1]}" if starts else f"{base}/metadata"
    why = plain_problem(files, path)
    if why is None:
        try:
            return _described(number, files.read(path) or b""), None
        except (ValueError, LookupError, TypeError, AttributeError):
            why = "it is torn or garbled: it does not say which stores the operator has"
    severity = Severity.ERROR if starts else Severity.WARNING
    what = why if starts else f"{why}; Spark goes on without it, tools that read the state do not"
    return Operator(number, _stores_in(files, number), 0), Finding(path, severity, what, _FIX)


def _described(number: int, data: bytes) -> Operator:
    version, document = data.decode().split("\n", 1)
    if not version.startswith("v"):
        raise ValueError(version)
    stores = json.loads(document)["stateStoreInfo"]
    names = tuple(str(one["storeName"]) for one in stores)
    schemas = tuple(str(schema) for one in stores for schema in one.get("stateSchemaFilePaths", ()))
    return Operator(number, names, max((int(one["numPartitions"]) for one in stores), default=0), schemas)


def _stores_in(files: Files, number: int) -> tuple[str, ...]:
    inside = files.names(f"state/{number}/0") - {"_metadata", "SSTs", "logs"}
    named = tuple(sorted(name for name in inside if files.is_folder(f"state/{number}/0/{name}")))
    return named or (_DEFAULT,)


def _schemas(files: Files, operator: Operator) -> Iterator[Finding]:
    """Kept in partition 0 of each store, or where the description says: by absolute path, so only its end counts."""
    root = f"state/{operator.number}"
    if operator.schemas:
        paths = [f"{root}/{path.rpartition(f'/{root}/')[2]}" for path in operator.schemas]
    else:
        folders = (f"{root}/0" if name == _DEFAULT else f"{root}/0/{name}" for name in operator.stores)
        paths = [f"{folder}/_metadata/schema" for folder in folders]
    for path in paths:
        if not files.check(path).exists:
            missing = Severity.ERROR if operator.schemas else Severity.WARNING
            what = (
                "the state's schema is missing"
                if operator.schemas
                else "the state's schema is missing; Spark makes it anew"
            )
            yield Finding(path, missing, what, _FIX)
        elif (why := plain_problem(files, path)) is not None:
            yield Finding(path, Severity.ERROR, why, _FIX)
