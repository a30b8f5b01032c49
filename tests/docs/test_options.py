"""Every option of what users make is in its signature, its docstring and its page, and nothing else is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    CheckpointConfig,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    Hooks,
    Job,
    foreach_batch,
    sinks,
    sources,
)
from onceward.api import ApiConfig

PAGES = Path(__file__).parents[2] / "docs" / "targets"
SINKS = {
    sinks.FileSink: "files",
    sinks.SQLiteSink: "sqlite",
    sinks.PostgresSink: "postgres",
    sinks.MySQLSink: "mysql",
    sinks.KafkaSink: "kafka",
    sinks.RedisSink: "redis",
    sinks.StdoutSink: "stdout",
}
STRATEGIES = [FixedDelay, FailureRate, ExponentialDelay]
PUBLIC = [
    *SINKS,
    *STRATEGIES,
    Job,
    CheckpointConfig,
    foreach_batch,
    Hooks,
    ApiConfig,
    sources.KafkaSource,
    sources.offsets_for_monitoring,
]
_ROW = re.compile(r"^\| ((?:`\w+`(?:, | and )?)+) \| ([^|]*) \|", re.MULTILINE)


def parameters(of: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(of).parameters)


def options_table(page: str) -> dict[str, str]:
    """What the page's table of options says of their defaults; it is the one whose second column is called default."""
    text = (PAGES / f"{page}.md").resolve().read_text(encoding="utf-8")
    tables = re.findall(r"^\| option \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in _ROW.findall(table)]
    return {name: default for names, default in rows for name in re.findall(r"\w+", names.replace(" and ", " "))}


@pytest.mark.parametrize("public", PUBLIC, ids=lambda one: one.__name__)
def test_each_option_is_in_the_docstring(public: Callable[..., Any]) -> None:
    docstring = inspect.getdoc(public) or ""
    assert [name for name in parameters(public) if not re.search(rf"`{name}\b", docstring)] == []


@pytest.mark.parametrize(("sink", "page"), SINKS.items(), ids=SINKS.values())
def test_each_option_is_on_the_page(sink: Callable[..., Any], page: str) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    first = next(iter(parameters(sink)))
    missing = [name for name in parameters(sink) if name != first and not re.search(rf"`{name}\b", text)]
    assert missing == []


def test_each_setting_of_checkpoints_is_on_their_page() -> None:
    assert set(options_table("../checkpoints")) == set(parameters(CheckpointConfig))


@pytest.mark.parametrize(
    ("sink", "page"),
    [*SINKS.items(), (CheckpointConfig, "../checkpoints")],
    ids=[*SINKS.values(), "checkpoints"],
)
def test_the_page_names_no_other_options_and_their_defaults_as_they_are(sink: Callable[..., Any], page: str) -> None:
    documented, real = options_table(page), parameters(sink)
    assert documented
    assert set(documented) <= set(real)
    for name, said in documented.items():
        default = real[name].default
        if isinstance(default, bool):
            assert said.strip("`") == str(default), name
        elif isinstance(default, (int, float)):
            assert float(re.sub(r"[`,\s]|s$", "", said)) == default, name
        elif isinstance(default, str):
            assert default in said.strip('`"'), name


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.__name__)
def test_the_page_of_strategies_shows_their_signatures(strategy: Callable[..., Any]) -> None:
    shown = ", ".join(
        f'{name}="{one.default}"' if isinstance(one.default, str) else f"{name}={one.default}"
        for name, one in parameters(strategy).items()
    )
    page = (PAGES.parent / "restarting.md").read_text(encoding="utf-8")
    assert f"| `{strategy.__name__}({shown})` |" in page
