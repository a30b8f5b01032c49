"""Names of transactions: one spelling each, and whose they are."""

import pytest

from onceward.identity import Generation, JobIdentity, JobName, RunId, SinkName, TransactionName

JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
SINK = SinkName("sink")
NAME = TransactionName.of(JOB, SINK, epoch=7, takeover=0, slot=3, attempt=12, run=RunId("rrrrrr"))


def test_a_name_is_parsed_to_what_spelled_it() -> None:
    assert TransactionName.parse(str(NAME)) == NAME


@pytest.mark.parametrize(
    "change", [("_7_0_3_", "_07_0_3_"), ("_7_0_3_", "_7_00_3_"), ("_c_", "_0c_"), ("ow1_", "OW1_"), ("rrrrrr", "rrrrr")]
)
def test_a_name_in_another_spelling_is_not_one_of_ours(change: tuple[str, str]) -> None:
    """Two texts that mean one name could be listed, aborted and counted as two."""
    text = str(NAME)
    assert change[0] in text
    assert TransactionName.parse(text.replace(*change)) is None


def test_a_name_belongs_to_its_job_generation_and_sink_alone() -> None:
    other_generation = JobIdentity(JOB.name, Generation("bbbbbbbb"))
    assert NAME.belongs_to(JOB, SINK)
    assert not NAME.belongs_to(other_generation, SINK)
    assert NAME.is_of(other_generation, SINK), "receipts are read in every generation"
    assert not NAME.belongs_to(JobIdentity(JobName("page"), JOB.generation), SINK)
    assert not NAME.belongs_to(JOB, SinkName("other"))
