"""The dashboard: who may not look, who may not act, and what a person does is what was said."""

from __future__ import annotations

from mutants.mutant import Mutant

GATE = ("tests/unit/dashboard/test_dashboard_gate.py",)
HAND = ("tests/unit/dashboard/test_dashboard_hand.py",)
TABLES = ("tests/unit/dashboard/test_dashboard_tables.py",)

RULES = (
    Mutant(
        name="dashboard-answers-to-its-own-names",
        rule="A name that somebody has pointed at this host is not ours (DNS rebinding).",
        file="dashboard/gate.py",
        old="if not named_as_ours(hosts, scope, self._names):",
        new="if not hosts:",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-answers-no-other-sites-page",
        rule="What another site's page asks for is refused.",
        file="dashboard/gate.py",
        old="if not is_same_origin(headers, hosts[0]):",
        new="if False:",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-asks-for-a-key",
        rule="Nothing of a job is shown without a key.",
        file="dashboard/gate.py",
        old="if not is_login and not self._has_key(scope, headers):",
        new="if False:",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-compares-the-token",
        rule="Only the token is the token.",
        file="api/guard.py",
        old='return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)',
        new="return bool(given)",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-compares-the-cookie",
        rule="Only the cookie that was given opens it.",
        file="dashboard/gate.py",
        old="return found is not None and hmac.compare_digest(",
        new="return found is not None or hmac.compare_digest(",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-keeps-the-token-out-of-the-cookie",
        rule="Who sees the cookie does not know the token.",
        file="dashboard/gate.py",
        old='self._key = hmac.new(self._token, b"onceward dashboard cookie", hashlib.sha256).hexdigest()',
        new="self._key = token",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-hides-the-cookie-from-scripts-and-sites",
        rule="No script reads the cookie, and no other site's page sends it.",
        file="dashboard/gate.py",
        old='httponly=True, samesite="strict"',
        new='httponly=False, samesite="lax"',
        tests=GATE,
    ),
    Mutant(
        name="dashboard-acts-on-its-own-pages-word",
        rule="What changes something carries a header that no other site's page can add.",
        file="dashboard/gate.py",
        old='if headers.get(HEADER) != ["1"]:',
        new="if False:",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-that-is-read-only-changes-nothing",
        rule="With --read-only nobody acts.",
        file="dashboard/gate.py",
        old="if self._config.read_only and not is_login:",
        new="if False:",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-takes-no-form",
        rule="A form, which any page can send, is refused.",
        file="dashboard/gate.py",
        old="        return unfit_body(headers)\n",
        new="        return None\n",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-has-a-policy",
        rule="A browser runs no script but ours.",
        file="dashboard/gate.py",
        old="\"default-src 'self'; ",
        new="\"default-src 'self' 'unsafe-inline'; ",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-cannot-be-framed",
        rule="No other page shows it in a frame, to have it clicked.",
        file="dashboard/gate.py",
        old='    "x-frame-options": "DENY",\n',
        new="",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-makes-no-markup",
        rule="What comes from a job is text.",
        file="dashboard/static/js/dom.js",
        old="node.append(document.createTextNode(String(child)));",
        new="node.innerHTML += String(child);",
        tests=GATE,
    ),
    Mutant(
        name="dashboard-commits-nothing-beside-a-driver",
        rule="A running driver publishes by itself.",
        file="dashboard/hand.py",
        old='if action == "commit" and not isinstance(view.live(), NoDriver):',
        new="if False:",
        tests=HAND,
    ),
    Mutant(
        name="dashboard-wants-a-reason",
        rule="Nobody aborts without saying why.",
        file="dashboard/hand.py",
        old="if not because.strip():",
        new="if False:",
        tests=HAND,
    ),
    Mutant(
        name="dashboard-records-who-aborts",
        rule="Who aborts, and why, is in the checkpoint before it is done.",
        file="dashboard/hand.py",
        old="    record_abort(context, [found], by=who, at=at, because=because)\n",
        new="",
        tests=HAND,
    ),
    Mutant(
        name="dashboard-believes-no-changed-piece",
        rule="A record is shown only if its bytes are those that were checked.",
        file="dashboard/pieces.py",
        old="if zlib.crc32(data) == piece.crc else None",
        new="if data else None",
        tests=TABLES,
    ),
)
