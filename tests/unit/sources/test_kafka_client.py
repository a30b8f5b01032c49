"""The source's own client: a clear word where the extra is missing, and no secret in any error."""

import sys
import traceback
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.sources import offsets_for_monitoring
from onceward.sources.brokers import Brokers

SECRETS = {"sasl.password": "hunter2", "ssl.key.password": "opensesame"}


def test_a_source_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match="KafkaSource needs the package confluent-kafka") as caught:
        Brokers("127.0.0.1:1", {})
    assert "onceward[kafka]" in (caught.value.hint or "")


@pytest.mark.parametrize("wrong", [{"no.such.setting": "hunter2"}, {"security.protocol": "hunter2"}])
def test_a_setting_that_the_client_does_not_take_is_named_without_secrets(wrong: dict[str, str]) -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ConfigurationError, match="does not take config") as caught:
        Brokers("127.0.0.1:1", {**SECRETS, **wrong})
    assert "hunter2" not in str(caught.value)
    assert next(iter(wrong)) in str(caught.value)


@pytest.mark.parametrize("wrong", [{"no.such.setting": "hunter2"}, {"security.protocol": "hunter2"}])
def test_offsets_for_monitoring_names_a_setting_that_is_not_taken_without_secrets(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    """The failure of a hook is logged, with all that led to it."""
    pytest.importorskip("confluent_kafka")
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{"conf":{}}\n{"views":{"0":5}}')
    hook = offsets_for_monitoring("127.0.0.1:1", "lag", tmp_path, config={**SECRETS, **wrong})
    with pytest.raises(ConfigurationError, match="does not take config") as caught:
        hook(0)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert next(iter(wrong)) in str(caught.value)
