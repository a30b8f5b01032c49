"""Every start of a restored checkpoint: what its targets have from after the savepoint is seen, and what was accepted
once is not asked for again."""

import json
import shutil
from pathlib import Path

import pytest
from places import Place, harm
from test_savepoints import ENDS, begun, resealed, restored, taken
from town import AT, A, B, refused

from onceward import Job
from onceward.admin import propose_identity, write_identity
from onceward.errors import CheckpointRolledBack, DamagedFile
from onceward.job import checkpoint_reached
from onceward.recovery import Accept
from onceward.restart import Reached
from onceward.savepoints import consequences, restore_savepoint, take
from onceward.savepoints.document import FILE
from onceward.sinks import FileSink
from onceward.storage import LocalStorage, directory_id_of
from onceward.testing import Behaviour, DiesAt, DirectoryLogs, Finished, Harness, ManualClock

ROLLBACK = Behaviour(accepted=frozenset({Accept.ROLLBACK}))


def job_at(place: Place, root: Path, *sinks: str) -> Harness:
    (root / "onceward").mkdir(parents=True, exist_ok=True)
    own = {"storage": LocalStorage(root / "onceward"), "logs": DirectoryLogs(root)}
    return place.town.job(*sinks, ends=ENDS, directory_id=directory_id_of(root / "onceward"), **own)


def test_the_first_job_that_goes_on_after_the_first_start_of_its_copy_is_noticed_at_the_next_one(
    tmp_path: Path,
) -> None:
    """The copy was only tried; or it died before its first epoch, and the first job was left alone for a while."""
    place = begun(tmp_path)
    copy = restored(place, taken(place, tmp_path / "saved").path, tmp_path / "new")
    copy.life(DiesAt("log plan 2"))
    assert isinstance(place.job.life(until=3), Finished)
    refused(copy, CheckpointRolledBack, "savepoint of epoch 1", "sink 'a' has epochs 2 to 3 (8 rows)")
    assert place.town.ids(A) == list(range(16)), "a refused start delivered something"
    assert isinstance(copy.life(behaviour=ROLLBACK), Finished)
    assert isinstance(copy.life(), Finished), "what was accepted once is asked again"


def test_a_sink_that_joins_after_the_first_start_is_asked_like_the_others(tmp_path: Path) -> None:
    place = begun(tmp_path)
    saved = taken(place, tmp_path / "saved").path
    place.job.life(until=3)
    place.town.targets[A].receipts.clear()
    restore_savepoint(saved, tmp_path / "new")
    assert isinstance(job_at(place, tmp_path / "new", A).life(until=1), Finished)
    refused(job_at(place, tmp_path / "new", A, B), CheckpointRolledBack, "sink 'b' has epochs 2 to 3")


def test_output_that_was_accepted_before_the_savepoint_was_taken_does_not_count(tmp_path: Path) -> None:
    """An earlier life of the job came further than this one has; its targets have that still."""
    place = begun(tmp_path, until=3)
    shutil.rmtree(place.root)
    fresh = job_at(place, tmp_path / "fresh")
    fresh.life(until=1, behaviour=Behaviour(accepted=frozenset({Accept.FRESH_START})))
    one = take(tmp_path / "fresh", tmp_path / "saved", clock=ManualClock(), spark="4.3.0")
    assert [found.told for found in consequences(one.savepoint, fresh.sinks)] == [None, None]
    assert isinstance(restored(place, one.path, tmp_path / "new").life(), Finished)
    assert place.town.ids(A) == place.town.ids(B) == sorted([*range(16), *range(20)])


def test_nor_does_what_a_restored_job_was_allowed_to_repeat_when_it_is_restored_once_more(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    place.job.life(until=3)
    copy = restored(place, one.path, tmp_path / "new")
    copy.life(until=2, behaviour=ROLLBACK)
    two = take(tmp_path / "new", tmp_path / "saved", clock=ManualClock(), spark="4.3.0")
    assert isinstance(restored(place, two.path, tmp_path / "newer").life(), Finished)
    assert place.town.ids(A) == sorted([*range(20), *range(8, 16)])


def test_a_grandparent_that_goes_on_is_noticed_as_a_parent_is(tmp_path: Path) -> None:
    """The copy between them has delivered nothing, so nothing in the targets keeps the first job from going on."""
    place = begun(tmp_path)
    copy = restored(place, taken(place, tmp_path / "saved").path, tmp_path / "new")
    assert isinstance(copy.life(until=1), Finished)
    two = take(tmp_path / "new", tmp_path / "saved", clock=ManualClock(), spark="4.3.0")
    tried = restored(place, two.path, tmp_path / "tried")
    assert isinstance(tried.life(until=1), Finished)
    assert isinstance(place.job.life(until=3), Finished)
    for again in (tried, restored(place, two.path, tmp_path / "newer")):
        refused(again, CheckpointRolledBack, "savepoint of epoch 1", "sink 'a' has epochs 2 to 3")
    assert isinstance(tried.life(behaviour=ROLLBACK), Finished)
    assert isinstance(tried.life(), Finished)


def test_what_was_accepted_in_one_sink_is_not_accepted_in_another(tmp_path: Path) -> None:
    """Its target lags, or was away: what the first job delivers there later nobody has been told of."""
    place = begun(tmp_path)
    saved, behind = taken(place, tmp_path / "saved").path, place.town.targets[B].backup()
    place.job.life(until=2)
    later = place.town.targets[B].backup()
    place.town.targets[B].restore(behind)
    copy = restored(place, saved, tmp_path / "new")
    assert "sink 'b'" not in str(refused(copy, CheckpointRolledBack, "sink 'a' has epoch 2"))
    assert isinstance(copy.life(until=1, behaviour=ROLLBACK), Finished)
    assert isinstance(copy.life(until=1), Finished)
    place.town.targets[B].restore(later)
    assert "sink 'a'" not in str(refused(copy, CheckpointRolledBack, "sink 'b' has epoch 2"))
    assert isinstance(copy.life(behaviour=ROLLBACK), Finished)
    assert isinstance(copy.life(), Finished)


@pytest.mark.parametrize("until", [1, 2])
def test_an_identity_that_is_found_out_anew_still_knows_its_savepoint(tmp_path: Path, until: int) -> None:
    """After the first start its newest record is damaged; it has delivered nothing yet, or an epoch. The receipts of
    the first job are not taken for its own."""
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    copy = restored(place, one.path, tmp_path / "new")
    assert isinstance(copy.life(until=until), Finished)
    harm(tmp_path / "new" / "onceward" / "identity.1.json", "flip")
    refused(copy, DamagedFile, "onceward resolve identity FILE")
    parts = {"sinks": copy.sinks, "storage": copy.storage, "decisions": copy.logs, "clock": copy.clock}
    new = propose_identity(name=copy.name, directory_id=copy.directory_id, **parts)
    assert f"it was restored from savepoint {one.savepoint.id}, after epoch 1" in new.proposal.lines
    assert new.identity.generation != one.savepoint.generation
    write_identity(copy.storage, new, by="ann@host", at=AT, because="a bit was flipped")
    assert isinstance(copy.life(until=until), Finished)
    if until == 1:
        assert isinstance(place.job.life(until=3), Finished)
        refused(copy, CheckpointRolledBack, "savepoint of epoch 1", "sink 'a' has epochs 2 to 3")
        return
    assert isinstance(copy.life(), Finished)
    assert place.town.ids(A) == place.town.ids(B) == list(range(20))


def test_told_to_stop_while_spark_starts_nothing_waits_that_was_published_before_the_savepoint(tmp_path: Path) -> None:
    """`onceward run` ends with 0 then, and with 3 where something that is decided waits to be published."""
    place = begun(tmp_path)
    copy = restored(place, taken(place, tmp_path / "saved").path, tmp_path / "new")
    job = Job(name="job", checkpoint=tmp_path / "new", pipeline=lambda spark: spark, sinks=[FileSink(tmp_path / "out")])
    assert checkpoint_reached(job) == Reached(decided=1, settled=1)
    copy.life(DiesAt("log commit 2", after=True))
    assert checkpoint_reached(job) == Reached(decided=2, settled=1)


@pytest.mark.parametrize("origin", ["", "/" + "x" * 5000, "/dev/null/x", "a\0b"])
def test_a_place_of_the_first_checkpoint_that_cannot_be_looked_at_keeps_nobody_from_going_on(
    tmp_path: Path, origin: str
) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    place.job.life(until=3)
    assert "origin" in json.loads((one.path / FILE).read_bytes().split(b"\n", 1)[1])
    resealed(one.path, origin=origin)
    copy = restored(place, one.path, tmp_path / "new")
    refused(copy, CheckpointRolledBack, "sink 'a' has epochs 2 to 3;")
    assert isinstance(copy.life(behaviour=ROLLBACK), Finished)
