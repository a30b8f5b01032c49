"""The password is in no text that anyone could read (scenario 71), whatever is in it and however it was given."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from onceward.errors import ConfigurationError, OncewardError, TargetRefused
from onceward.sinks import PostgresSink
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.testing import DiesAt, Failed, Harness, MemoryStorage, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA
from onceward.testing.servers import PostgresServer

from .conftest import Place
from .deliver import batch_of, context, staged
from .jobs import ServerErrorsAsFaults

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

PASSWORD = "s3cret@/:?#[]%&=+ '\"\\é☃"
SPELLINGS = (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD), repr(PASSWORD)[1:-1], "s3cret")


@dataclass(frozen=True)
class Locked:
    """A role that must give its password."""

    place: Place

    def url(self, password: str, *, in_query: bool) -> str:
        written = quote(password, safe="")
        user = "locked@" if in_query else f"locked:{written}@"
        return self.place.url.replace("owner@", user) + (f"&password={written}" if in_query else "")


@pytest.fixture(scope="module")
def strict(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server of all tests, but for this one role it wants a password."""
    rules = Path(postgres.folder / "data" / "pg_hba.conf")
    before = rules.read_text()
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.query("SELECT pg_reload_conf()")
    literal = PASSWORD.replace("'", "''")
    postgres.query(f"CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{literal}'")
    yield postgres
    postgres.query("DROP ROLE locked")
    rules.write_text(before)
    postgres.query("SELECT pg_reload_conf()")


@pytest.fixture
def locked(strict: PostgresServer, place: Place) -> Iterator[Locked]:
    yield Locked(place)
    place.query("DROP OWNED BY locked")


def everything_said(error: BaseException) -> str:
    """Message, arguments, notes, traceback, and the same of whatever stands behind it, shown or not."""
    said = [str(error), repr(error), *map(repr, error.args), "".join(traceback.format_exception(error))]
    behind = [other for other in (error.__cause__, error.__context__) if other is not None]
    return "\n".join([*said, *map(everything_said, behind)])


def assert_clean(text: str) -> None:
    for spelling in SPELLINGS:
        assert spelling not in text


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(OncewardError) as caught:
        call()
    return caught.value


BOTH = pytest.mark.parametrize("in_query", [False, True], ids=["in userinfo", "as ?password="])


@BOTH
def test_a_password_of_special_characters_opens_the_door_and_a_wrong_one_does_not(
    locked: Locked, in_query: bool
) -> None:
    sink = PostgresSink(locked.url(PASSWORD, in_query=in_query), table="rows")
    sink.check(SCHEMA, output_mode="append")
    wrong = PostgresSink(locked.url(f"{PASSWORD}!", in_query=in_query), table="rows")
    error = raised(wrong.choose)
    assert isinstance(error, TargetRefused)
    assert 'password authentication failed for user "locked"' in str(error)
    assert_clean(everything_said(error))


@BOTH
@pytest.mark.parametrize("variant", [{}, {"two_phase": False}], ids=["two-phase", "write-ahead"])
def test_a_whole_run_with_failures_says_it_nowhere(
    locked: Locked, in_query: bool, variant: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place, storage = locked.place, MemoryStorage()
    made = PostgresSink(locked.url(PASSWORD, in_query=in_query), table="rows", **variant)
    sink = made.choose()
    sink.check(SCHEMA, output_mode="append")
    harness = Harness(SinkUnderTest(sink, place.rows, ordered=False), source=Source(ends=(4, 8)), storage=storage)
    harness.life(DiesAt("sink postgres:rows " + ("commit_all" if not variant else "send")))
    stored = b"\n".join(storage.files.values()).decode(errors="replace")
    assert "postgres:rows" in stored
    place.query("ALTER ROLE locked NOLOGIN")
    place.query("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'locked'")
    failed = harness.life(ServerErrorsAsFaults())
    place.query("ALTER ROLE locked LOGIN")
    assert isinstance(failed, Failed)
    assert "not permitted to log in" in str(failed.error)
    harness.drain()
    assert harness.problems() == []
    for said in (made, sink, made._options, made._options.address, vars(made), vars(sink)):
        assert_clean(f"{said!r} {said}")
    assert_clean(everything_said(failed.error))
    assert_clean("\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records))
    assert_clean(stored + "\n".join(harness.trace) + "\n".join(map(str, harness.plans)))
    assert_clean(str(place.query("SELECT query, application_name FROM pg_stat_activity")))
    assert_clean(place.server.log)


@BOTH
def test_a_handle_does_not_carry_it(locked: Locked, in_query: bool) -> None:
    import pyarrow as pa

    sink = PostgresSink(locked.url(PASSWORD, in_query=in_query), table="rows").choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    batch = batch_of(id=pa.array([1]))
    sink.check(batch.schema, output_mode="append")
    handle = staged(sink, context(sink), [batch])
    assert_clean(repr(handle) + pickle.dumps(handle).decode(errors="replace"))
    sink.abort(handle)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret/x@host/db",
        "postgresql://user:x@s3cret@host/db",
        "postgresql://user:s3cret?x@host/db",
        "postgresql://user:s3cret?x=y@host/db",
        "postgresql://user:s3cret#x@host/db",
        "postgresql://user:s3cret%zz@host/db",
        "postgresql://user:s3cret%00@host/db",
        "postgresql://user:s3cret%@host/db",
        "postgresql://user:s3cret\0@host/db",
        "postgresql://host/db?password=s3cret#x",
        "postgresql://host/db?password=s3cret%zz",
        "postgresql://host/db?s3cret",
        "postgresql://[user:s3cret/x@host]/db",
        "postgres ql://user:s3cret@host/db",
        "user=u password=s3cret",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    error = raised(lambda: PostgresSink(url, table="rows"))
    assert isinstance(error, ConfigurationError)
    assert_clean(str(error) + repr(error) + "".join(f"{e!r}" for e in (error.__cause__, error.__context__)))


@pytest.mark.parametrize("given", ["s3cret\u2100", "s3cret%E2%84%80", "a:s3cret:b"])
def test_an_address_with_odd_characters_is_shown_without_the_password(given: str) -> None:
    sink = PostgresSink(f"postgresql://user:{given}@h1:1,[::1]:2/db?sslpassword=s3cret", table="rows")
    assert str(sink._options.address) == "postgresql://h1:1,[::1]:2/db"
    assert_clean(repr(sink) + sink._options.address.without_secrets(f"it is {given} and s3cret"))
