"""What a sink is called whose user gave it no name: as ever, because staged work and receipts are found again by it."""

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.sinks import FileSink, KafkaSink


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/pv", "files:pv"),
        ("/", "files:root"),
        ("/data/page views", "files:page views"),
        ("/data/ pv ", "files: pv"),
        ("/data/ä\u4e2d\U0001f600", "files:ä\u4e2d\U0001f600"),
        # Letters that do not print: joiners, blanks that do not break or are wide, soft hyphens.
        (
            "/data/\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "files:\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        ("/data/page\u00a0views", "files:page\u00a0views"),
        ("/data/page\u3000views", "files:page\u3000views"),
        ("/data/page\u00adviews", "files:page\u00adviews"),
        ("/data/pv\u00a0", "files:pv"),
        ("/data/" + "x" * 250, "files:" + "x" * 194),
        ("/data/" + "x" * 193 + " y", "files:" + "x" * 193),
    ],
)
def test_a_file_sink_keeps_the_name_that_checkpoints_hold(path: str, name: str) -> None:
    assert FileSink(path).name == name


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("x\\y", "files:x_y"),
        ("x\ty", "files:x_y"),
        ("x\x7fy\u200c", "files:x_y_"),
        ("x\\" + "y" * 250, "files:x_" + "y" * 192),
    ],
)
def test_a_folder_after_which_no_sink_can_be_named_is_taken_all_the_same(
    tmp_path: Path, folder: str, name: str
) -> None:
    assert FileSink(tmp_path / folder).name == name


@pytest.mark.parametrize("topic", ["pv", "A.b-c_1", "x" * 249])
def test_a_kafka_sink_keeps_the_name_that_checkpoints_hold(topic: str) -> None:
    assert KafkaSink("localhost:9092", topic=topic).name == f"kafka:{topic}"[:200]


def test_a_kafka_sink_whose_rows_name_their_topics_keeps_its_name() -> None:
    assert KafkaSink("localhost:9092", topic_column="to").name == "kafka:*"


@pytest.mark.parametrize("topic", ["", "p\tv", "p/v", "pv "])
def test_a_topic_that_cannot_be_is_refused_as_a_topic(topic: str) -> None:
    """And not as the name of a sink, which nobody gave."""
    with pytest.raises(ConfigurationError, match="topic is") as refused:
        KafkaSink("localhost:9092", topic=topic)
    assert "letters, digits" in (refused.value.hint or "")
