"""Where the API listens: on loopback, unless another address is written out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onceward import Job
from onceward.api import ApiConfig
from onceward.cli.load import with_api
from onceward.errors import ConfigurationError
from onceward.sinks import FileSink


def test_loopback_unless_asked_otherwise() -> None:
    assert ApiConfig().is_loopback
    assert ApiConfig(host="localhost").is_loopback
    assert ApiConfig(host="::1").is_loopback
    assert ApiConfig.parse("8080") == ApiConfig(port=8080)
    assert ApiConfig.parse("8080").is_loopback
    assert not ApiConfig(host="0.0.0.0").is_loopback
    assert not ApiConfig.parse("[::]:1").is_loopback


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:80", "::1", 80), ("localhost:65535", "localhost", 65535)],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert ApiConfig.parse(text) == ApiConfig(host=host, port=port)


@pytest.mark.parametrize("text", ["", ":", ":80", "host", "example.com:80", "1.2.3.4:70000", "1.2.3.4:-1", "1.2.3.4:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Nor is a name: it could mean another address tomorrow."""
    with pytest.raises(ConfigurationError) as refused:
        ApiConfig.parse(text)
    assert refused.value.hint


@pytest.mark.parametrize("names", ["driver.example", ("",)])
def test_names_are_a_list_of_names(names: object) -> None:
    with pytest.raises(ConfigurationError):
        ApiConfig(names=names)


def test_each_run_has_a_token_of_its_own() -> None:
    tokens = {ApiConfig().token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 40


def test_a_token_of_a_file_is_taken_and_a_weak_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text in ("", "short", "with a space in the middle", "ü" * 20):
        file.write_text(text)
        with pytest.raises(ConfigurationError) as refused:
            ApiConfig(token_file=file).token()
        assert not text or text not in str(refused.value)
    with pytest.raises(ConfigurationError):
        ApiConfig(token_file=tmp_path / "nowhere").token()
    file.write_text("0123456789abcdef\n")
    assert ApiConfig(token_file=file).token() == "0123456789abcdef"


def test_the_command_gives_a_job_an_api_and_keeps_what_the_job_says(tmp_path: Path) -> None:
    sinks = [FileSink(tmp_path / "out")]
    plain = Job(name="j", checkpoint=tmp_path, pipeline=lambda spark: spark.table("t"), sinks=sinks)
    assert with_api(plain, asked=False, bind=None).api is None
    assert with_api(plain, asked=True, bind=None).api == ApiConfig()
    assert with_api(plain, asked=False, bind="8080").api == ApiConfig(port=8080)
    own = replace(plain, api=ApiConfig(port=1, names=["a"]))
    assert with_api(own, asked=True, bind=None).api == own.api
    assert with_api(own, asked=True, bind="127.0.0.1:2").api == ApiConfig(port=2, names=["a"])


def test_an_api_that_is_no_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Job(name="j", checkpoint=tmp_path, pipeline=print, sinks=[FileSink(tmp_path)], api=True)
    assert "ApiConfig" in (refused.value.hint or "")


def test_without_the_extra_everything_but_the_server_is_there() -> None:
    """The message says what to install."""
    program = """
import sys
for name in ("fastapi", "uvicorn", "prometheus_client", "pydantic", "starlette", "anyio"):
    sys.modules[name] = None
import onceward.cli.main
from onceward.api.server import ApiServer
from onceward.api import ApiConfig
from onceward.errors import ConfigurationError
try:
    ApiServer(ApiConfig())
except ConfigurationError as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["run: pip install 'onceward[api]'"], done.stderr
