"""The source's own client: a clear word where the extra is missing, and no secret in any error."""

import sys

import pytest

from onceward.errors import ConfigurationError
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
