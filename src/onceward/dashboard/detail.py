"""More of one job: the way of its data, its sinks, its settings, and all that is known of one epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from onceward.api import DriverGone, NoDriver
from onceward.dashboard.digest import digest_of
from onceward.dashboard.flow import flow, operators_of, topology_of
from onceward.dashboard.tables import as_json
from onceward.dashboard.view import JobView, record_from
from onceward.errors import DamagedFile
from onceward.history import PHASES, EpochRecord
from onceward.journal import EpochFiles, Manifest, Register
from onceward.operators import Topology
from onceward.sources.positions import offset_ranges


def job_detail(view: JobView) -> dict[str, Any]:
    """The glance, and the picture: sources, operators, sinks, each with what went through it in the newest epoch."""
    glance = view.glance()
    record = view.index.newest
    return {**glance, "flow": flow(topology_of(view), record), "sinks": _sinks(view, record), "meaning": PHASES}


def _sinks(view: JobView, record: EpochRecord | None) -> list[dict[str, Any]]:
    """As the running driver names them, else as the newest epochs do; with what waits for each."""
    known: dict[str, dict[str, Any]] = {}
    newest = view.settled.legible(view.settled.watermark())
    if newest is not None:
        known = {
            name: {"mechanism": total.mechanism, "guarantee": total.guarantee, "rows": total.rows}
            for name, total in newest.sinks.items()
        }
    waiting = [manifest for _, manifest in unsettled(view)]
    for manifest in waiting:
        for name, entry in manifest.sinks.items():
            known.setdefault(name, {"mechanism": entry.mechanism, "guarantee": manifest.guarantee, "rows": None})
    if isinstance(live := view.live(), NoDriver):
        said: Iterable[Mapping[str, Any]] = ()
    else:
        with suppress(DriverGone):
            said = live.get("/v1/status")["sinks"]
            named = {one["name"]: {"mechanism": one["mechanism"], "guarantee": one["guarantee"]} for one in said}
            known = {name: {"rows": None, **known.get(name, {}), **one} for name, one in named.items()}
    doubt = {one["sink"]: one for one in view.glance()["in_doubt"]}
    return [
        {
            "name": name,
            **one,
            "waiting_epochs": sum(1 for manifest in waiting if _rows_for(manifest, name)),
            "waiting_rows": sum(_rows_for(manifest, name) for manifest in waiting),
            "in_doubt": doubt.get(name, {}).get("transactions"),
            "oldest_s": doubt.get(name, {}).get("oldest_s"),
            "took": _took(record, name),
        }
        for name, one in sorted(known.items())
    ]


def _rows_for(manifest: Manifest, name: str) -> int:
    return sum(entry.rows for sink, entry in manifest.sinks.items() if sink == name)


def _took(record: EpochRecord | None, name: str) -> float | None:
    sink = next((one for sink, one in record.sinks.items() if sink == name), None) if record is not None else None
    if sink is None or sink.began_at is None or sink.delivered_at is None:
        return None
    return max(0.0, (sink.delivered_at - sink.began_at).total_seconds())


def unsettled(view: JobView) -> list[tuple[int, Manifest]]:
    """The manifests that count of the epochs that are not settled, in order. Damaged ones are left out."""
    register, watermark = Register(view.storage), view.glance()["settled"]
    found = []
    for epoch, files in sorted(register.epochs().items()):
        if epoch > watermark and (manifest := _manifest(register, epoch, files)) is not None:
            found.append((epoch, manifest))
    return found


def _manifest(register: Register, epoch: int, files: EpochFiles) -> Manifest | None:
    try:
        return register.valid_manifest(epoch, files)
    except DamagedFile:
        return None


def epoch_detail(view: JobView, epoch: int) -> dict[str, Any] | None:
    """Every attempt with its slots, where the epoch ends in its sources, and what each sink staged; None if unknown."""
    view.rows()
    attempts = view.index.attempts(epoch)
    live = view.live()
    if not isinstance(live, NoDriver) and all(one.outcome != "settled" for one in attempts):
        with suppress(DriverGone):
            attempts = [record_from(one) for one in live.get(f"/v1/epochs/{epoch}")["attempts"]]
    manifest, settled_at = _staged(view, epoch)
    barrier = view.logs.barrier(epoch)
    if not attempts and manifest is None and barrier is None:
        return None
    glance, topology = view.glance(), topology_of(view)
    return {
        "epoch": epoch,
        "state": _state(epoch, glance, manifest),
        "attempts": [_attempt(one, topology) for one in attempts],
        "planned": barrier.timestamp.timestamp() if barrier is not None else None,
        "settled": settled_at.timestamp() if settled_at is not None else None,
        "offsets": [asdict(one) for one in offset_ranges(view.place.checkpoint, epoch)],
        "sources": view.logs.sources(epoch),
        "sinks": _staged_sinks(manifest),
        "fingerprint": manifest.fingerprint if manifest is not None else None,
        "meaning": PHASES,
    }


def _state(epoch: int, glance: Mapping[str, Any], manifest: Manifest | None) -> str:
    if epoch <= glance["settled"]:
        return "settled"
    if epoch <= glance["decided"]:
        return "decided"
    return "staged" if manifest is not None else "planned"


def _staged(view: JobView, epoch: int) -> tuple[Manifest | None, datetime | None]:
    """What was staged for it: in its marker once it is settled, in the register until then."""
    marker = view.settled.legible(epoch)
    if marker is not None:
        return marker.manifest, marker.settled_at
    register = Register(view.storage)
    return _manifest(register, epoch, register.files(epoch)), None


def _staged_sinks(manifest: Manifest | None) -> list[dict[str, Any]]:
    """In columns: an epoch may have a thousand slots in each. Of a handle only the transaction's name is shown."""
    if manifest is None:
        return []
    return [
        {
            "name": name,
            "mechanism": entry.mechanism,
            "receipts_at": entry.receipts_at,
            "rows": entry.rows,
            "slot": [slot.slot for slot in entry.slots],
            "slot_rows": [slot.rows for slot in entry.slots],
            "transaction": [slot.transaction for slot in entry.slots],
        }
        for name, entry in manifest.sinks.items()
    ]


def _attempt(record: EpochRecord, topology: Topology) -> dict[str, Any]:
    acked = sorted(slot.acked_at for slot in record.slots if slot.acked_at is not None)
    return {
        **as_json(digest_of(record)),
        "times": {step: at.timestamp() for step, at in record.times.items()},
        "sinks": {
            name: {
                "rows": sink.rows,
                "slots": sink.slots,
                "began": _at(sink.began_at),
                "delivered": _at(sink.delivered_at),
                "retries": sink.retries,
                "failure": sink.failure,
            }
            for name, sink in record.sinks.items()
        },
        "sources": dict(record.sources),
        "state": operators_of(topology, record) if record.state else [],
        "engine_ms": dict(record.engine_ms),
        "first_ack": _at(acked[0]) if acked else None,
        "last_ack": _at(acked[-1]) if acked else None,
        "slot": {
            "slot": [slot.slot for slot in record.slots],
            "rows": [slot.rows for slot in record.slots],
            "bytes": [slot.bytes for slot in record.slots],
            "acked": [_at(slot.acked_at) for slot in record.slots],
            "host": [slot.host for slot in record.slots],
        },
    }


def _at(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None


def settings(view: JobView) -> dict[str, Any]:
    """What the job was asked for, as far as it is known, and what Spark has pinned. No address of a target is in it."""
    record, access, live = view.record(), view.place.access, view.live()
    run: dict[str, Any] = {}
    if not isinstance(live, NoDriver):
        with suppress(DriverGone):
            status = live.get("/v1/status")
            run = {name: status[name] for name in ("run", "pid", "host", "version", "started_at", "guarantee")}
    identity: dict[str, Any] = {"checkpoint": str(view.place.checkpoint)}
    if record is not None:
        identity |= {"job": record.job, "generation": record.generation, "query": record.query}
        identity |= {"guarantee": record.guarantee.value if record.guarantee is not None else None}
        identity |= {"accepted generations": ", ".join(record.known) or None}
    return {
        "identity": identity,
        "run": run,
        "options": dict(access.options) if access is not None else {},
        "spark": view.logs.pinned(),
        "sinks": _sinks(view, view.index.newest),
    }
