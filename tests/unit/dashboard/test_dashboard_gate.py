"""Who may not look, and who may not act: no key, a foreign name, another site's page, a read-only dashboard."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from api_client import Client, Reply
from api_world import TOKEN
from dashboard_client import JSON, client_of

from onceward import dashboard
from onceward.dashboard import DashboardConfig, Place
from onceward.errors import ConfigurationError

STATIC = Path(dashboard.__file__).parent / "static"


@pytest.fixture
def keyless(checkpoint: Path) -> Client:
    client = client_of(Place(checkpoint))
    client._token = None
    return client


def cookie_of(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]


def reads(place: str) -> list[str]:
    views = ("", "/epochs", "/timeline", "/summary", "/settings", "/lives", "/transactions", "/epochs/1", "/verify")
    return ["/api/jobs", "/api/about", "/api/events", *(f"/api/jobs/{place}{view}" for view in views)]


def acts(place: str) -> list[str]:
    return [f"/api/jobs/{place}/transactions/{what}" for what in ("propose", "act")]


def test_without_a_key_the_page_is_given_and_nothing_of_a_job(keyless: Client, checkpoint: Path) -> None:
    place = Place(checkpoint).id
    assert keyless.get("/").status == 200
    assert str(checkpoint).encode() not in keyless.get("/").body
    for path in reads(place):
        reply = keyless.get(path)
        assert reply.status == 401, path
        assert checkpoint.name.encode() not in reply.body
    for path in acts(place):
        assert keyless.send("POST", path, JSON, body=b"{}").status == 401


def test_the_printed_address_gives_a_cookie_that_opens_it_and_does_not_tell_the_token(keyless: Client) -> None:
    entered = keyless.get(f"/?token={TOKEN}")
    assert entered.status == 303
    assert TOKEN not in entered.headers["location"]
    given = entered.headers["set-cookie"]
    assert all(flag in given for flag in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert TOKEN not in given
    assert keyless.get("/api/jobs", {"Cookie": cookie_of(entered)}).status == 200
    assert keyless.get("/api/jobs", {"Cookie": cookie_of(entered)[:-1]}).status == 401
    assert "set-cookie" not in keyless.get("/?token=wrong").headers


def test_the_form_takes_the_token_too(keyless: Client) -> None:
    right = keyless.send("POST", "/api/login", JSON, body=b'{"token": "%s"}' % TOKEN.encode())
    assert keyless.get("/api/jobs", {"Cookie": cookie_of(right)}).status == 200
    assert keyless.send("POST", "/api/login", JSON, body=b'{"token": "nearly"}').status == 401


def test_a_link_in_another_page_opens_the_page_and_asks_for_nothing(stopped: Client, checkpoint: Path) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert stopped.get("/", foreign).status == 200
    for path in reads(Place(checkpoint).id):
        assert stopped.get(path, foreign).status == 403
        assert stopped.get(path, {"Origin": "https://evil.example"}).status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.5", "", None])
def test_another_name_is_refused_for_the_page_too(stopped: Client, host: str | None) -> None:
    for path in ("/", "/static/style.css", "/api/jobs"):
        assert stopped.get(path, host=host).status == 403


def test_a_name_that_was_given_is_answered_to(checkpoint: Path) -> None:
    client = client_of(Place(checkpoint), DashboardConfig(names=["dash.example"]))
    assert client.get("/api/jobs", host="dash.example").status == 200


def test_what_changes_something_needs_a_header_that_no_other_page_can_send(with_file: Client, checkpoint: Path) -> None:
    body = b'{"action": "abort", "transaction": "x"}'
    for path in acts(Place(checkpoint).id):
        assert with_file.send("POST", path, {"Content-Type": "application/json"}, body=body).status == 403
        form = {"Content-Type": "application/x-www-form-urlencoded", "X-Onceward": "1"}
        assert with_file.send("POST", path, form, body=body).status == 415
        assert with_file.send("POST", path, {**JSON, "Origin": "https://evil.example"}, body=body).status == 403
        assert with_file.send("POST", path, {**JSON, "Sec-Fetch-Site": "same-site"}, body=body).status == 403
        assert with_file.send("POST", path, JSON, body=b"x" * (1 << 17)).status == 413


def test_read_only_means_that_nothing_is_changed(checkpoint: Path, access: object) -> None:
    client = client_of(Place(checkpoint, access), DashboardConfig(read_only=True))
    body = b'{"action": "abort", "transaction": "x", "because": "y"}'
    for path in acts(Place(checkpoint).id):
        reply = client.send("POST", path, JSON, body=body)
        assert (reply.status, reply.json["error"]) == (403, "ReadOnly")
    listed = client.get(f"/api/jobs/{Place(checkpoint).id}/transactions").json
    assert listed["why_not"] == "this dashboard is read-only"
    assert all(not one["actions"] for one in listed["transactions"])


def test_every_answer_has_a_policy_by_which_a_browser_runs_no_foreign_script(stopped: Client) -> None:
    for path in ("/", "/static/js/main.js", "/api/jobs", "/api/nowhere", "/static/../app.py"):
        headers = stopped.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert stopped.get("/api/jobs").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2f..%2fapi/guard.py"]
)
def test_no_file_beside_the_page_is_given(stopped: Client, path: str) -> None:
    reply = stopped.get(path)
    assert reply.status == 404
    assert b"import" not in reply.body


def test_the_page_makes_no_markup_of_what_it_is_told_and_loads_nothing_from_elsewhere() -> None:
    ours = [
        path for path in STATIC.rglob("*") if path.suffix in (".js", ".html", ".css") and "vendor" not in path.parts
    ]
    assert ours
    for path in ours:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )
        assert not re.search(r"""(?:src|href|url|import|fetch)\W{1,4}(?:https?:)?//""", text), path
        assert not re.search(r"<(?:script|style)(?![^>]*\bsrc=)[^>]*>\s*\S|\son\w+=\"|\sstyle=\"", text), path


def test_every_module_is_asked_for_at_once() -> None:
    """One that another one names is else only asked for when that has come."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'rel="modulepreload" href="static/(js/[\w/]+\.js)"', page))
    ours = {path.relative_to(STATIC).as_posix() for path in (STATIC / "js").rglob("*.js")}
    assert named == ours - {"js/main.js", "js/theme.js"}


def test_the_first_view_is_small() -> None:
    sizes = {path.name: path.stat().st_size for path in STATIC.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 200_000, sizes
    assert "uPlot.LICENSE" in sizes


def test_garbage_is_refused_and_never_answered_with_a_traceback(stopped: Client, checkpoint: Path) -> None:
    chance = random.Random(16)
    letters = "0123456789abcdef%/.?&=-+ü\"'<>{}[]"
    job = Place(checkpoint).id
    names = ("offset", "limit", "first", "last", "since", "until", "outcome", "unusual", "bars", "newest", "x")
    for _ in range(300):
        text = "".join(chance.choices(letters, k=chance.randrange(12)))
        tail = chance.choice(["", "/epochs", "/timeline", f"/epochs/{text}", f"/{text}"])
        path = f"/api/jobs/{chance.choice([job, text])}{tail}?{chance.choice(names)}={text}"
        reply = stopped.get(path.encode("ascii", "ignore").decode())
        assert reply.status in (200, 404, 405, 422), (path, reply.status, reply.body[:200])
        assert b"Traceback" not in reply.body
    for _ in range(100):
        body = "".join(chance.choices(letters, k=chance.randrange(80))).encode()
        reply = stopped.send(
            "POST", f"/api/jobs/{job}/transactions/{chance.choice(['act', 'propose'])}", JSON, body=body
        )
        assert reply.status in (400, 409, 422), (body, reply.status)


@pytest.mark.parametrize("prefix", ["onceward", "/a b", "/x/", "//", "/../x?"])
def test_a_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError):
        DashboardConfig(prefix=prefix)
