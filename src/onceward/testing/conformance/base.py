"""What holds for every sink, and the rows that the suite sends through them."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from onceward.contracts import AnySink, Guarantee
from onceward.identity import Generation, JobIdentity, JobName
from onceward.testing.engine import SCHEMA, Batch

Rows = Sequence[dict[str, Any]]
AT = datetime(2026, 1, 1, tzinfo=UTC)
OTHER = Generation("bbbbbbbb")


def job_named(name: str, generation: str = "aaaaaaaa") -> JobIdentity:
    """A job to stage for."""
    return JobIdentity(JobName(name), Generation(generation))


def batches(epoch: int, slot: int = 0, *, version: str = "v", attempt: int = 1) -> list[pa.RecordBatch]:
    """Two batches of the slot: ids 10 * epoch to 10 * epoch + 3, spread over two slots."""
    batch = Batch(epoch, 2, version, range(10 * epoch, 10 * epoch + 4), keys=2, rows_in_a_batch=1)
    return list(batch.slot(slot, attempt))


class SinkConformance(ABC):
    """What holds for every sink. Use the class below that names the sink's template."""

    job = job_named("app-1")
    writes_by_key: ClassVar[bool] = False
    """True for sinks that keep one row for each `id`: what is sent twice is then seen once."""

    @abstractmethod
    def make_sink(self, name: str = "sink") -> AnySink:
        """A sink of this test's target, checked and ready."""

    @abstractmethod
    def read_rows(self) -> Rows:
        """What a plain reader of the target sees."""

    def ids(self) -> list[int]:
        """The ids that are visible, sorted."""
        return sorted(row["id"] for row in self.read_rows())

    def seen(self, ids: Sequence[int]) -> list[int]:
        """What is visible after these ids were written, each as often as it stands here."""
        return sorted(set(ids)) if self.writes_by_key else sorted(ids)

    def test_a_sink_pickles_and_keeps_its_name(self) -> None:
        """It travels to executors."""
        sink = self.make_sink()
        copy = pickle.loads(pickle.dumps(sink))
        assert copy.name == sink.name
        assert type(copy) is type(sink)

    def test_a_sink_says_by_which_means_it_works(self) -> None:
        """Shown to users before the job starts."""
        sink = self.make_sink()
        assert sink.mechanism
        assert isinstance(sink.guarantee, Guarantee)

    def test_checking_twice_changes_nothing(self) -> None:
        """Every start checks."""
        for _ in range(2):
            self.make_sink().check(SCHEMA, output_mode="append")
        assert self.ids() == []

    def test_an_empty_target_has_no_receipts(self) -> None:
        """A first start finds nothing."""
        assert list(self.make_sink().receipts(self.job)) == []

    def test_forgetting_before_anything_was_written_is_fine(self) -> None:
        """A sink may be added to a running job."""
        self.make_sink().forget(self.job, 3)
        assert self.ids() == []
