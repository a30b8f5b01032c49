"""The protocol holds within its bounds, and each of its rules is needed: taken away, it brings a violation back."""

import pytest

from .explore import explore
from .protocol import Protocol
from .rules import Rule
from .world import Bounds

# Each entry lets the adversary do more of one thing, so that together they cover every fault at a price a laptop pays.
HOLDS = {
    "two drivers, two epochs": Bounds(crashes=0, rivals_need=0),
    "two drivers, a crash, a forgotten decision": Bounds(epochs=1, runs=3, forgets=1),
    "two drivers, pruning": Bounds(epochs=1, forgets=1, prunes=1),
    "two drivers, a lost attempt": Bounds(epochs=1, delays=1),
    "one driver, a lost attempt, the reaper": Bounds(epochs=1, drivers=1, runs=3, crashes=2, delays=1, reaps=2),
    "one driver, a lost barrier": Bounds(drivers=1, crashes=2, forgets=2, unlogs=2, prunes=1),
    "one driver, a replaced checkpoint": Bounds(drivers=1, runs=3, crashes=2, rollbacks=1, prunes=1),
    "an empty epoch": Bounds(empty=frozenset({0}), drivers=1, runs=3, crashes=2, forgets=1),
}
THREE_DRIVERS = Bounds(epochs=1, drivers=3, runs=3, crashes=0, rivals_need=0)
SOAK = {
    "three drivers": THREE_DRIVERS,
    "three crashes": Bounds(epochs=1, runs=4, crashes=3),
    "two drivers, two epochs, a crash": Bounds(),
    "two drivers, a lost attempt, the reaper": Bounds(epochs=1, delays=1, reaps=1),
    "two drivers, crashes, a lost barrier": Bounds(epochs=1, runs=3, crashes=2, forgets=1, unlogs=1),
}
ONE_DRIVER = Bounds(epochs=1, drivers=1)
TWO_DRIVERS = Bounds(epochs=1)

# The narrowest bounds that show what each rule is for.
NEEDED = {
    Rule.DECISION_FIRST: ONE_DRIVER,
    Rule.OFFSETS_DECIDE: Bounds(drivers=1, forgets=1),
    Rule.IN_ORDER: Bounds(drivers=1),
    Rule.RECEIPT: ONE_DRIVER,
    Rule.NAMED_ONLY: Bounds(epochs=1, drivers=1, delays=1),
    Rule.EMPTY_MANIFEST: Bounds(epochs=1, drivers=1, empty=frozenset({0})),
    Rule.MANIFEST_ONCE: TWO_DRIVERS,
    Rule.MARKER_FIRST: ONE_DRIVER,
    Rule.LOOK_AGAIN: TWO_DRIVERS,
    Rule.SETTLED_LAST: TWO_DRIVERS,
    Rule.PRUNE_MARK: Bounds(epochs=1, prunes=1),
    Rule.TAKE_OVER: TWO_DRIVERS,
    Rule.RESERVE: TWO_DRIVERS,
    Rule.REREAD: TWO_DRIVERS,
    Rule.FATE_ONCE: TWO_DRIVERS,
    Rule.ADOPT: TWO_DRIVERS,
    Rule.ADOPT_WAITS: THREE_DRIVERS,
    Rule.ABORT_LAST: TWO_DRIVERS,
    Rule.ABORT_LOWER: Bounds(epochs=1, runs=3, crashes=0),
    Rule.TIDY_AFTER_LOOK: Bounds(epochs=1, runs=3),
    Rule.REFUSE: TWO_DRIVERS,
    Rule.VOID_LOWER: TWO_DRIVERS,
    Rule.CHECK_AFTER: TWO_DRIVERS,
    Rule.FORGOTTEN: Bounds(epochs=1, drivers=1, forgets=1),
    Rule.EMPTY_PASS: Bounds(epochs=1, drivers=1, forgets=1),
    Rule.FINGERPRINT: Bounds(epochs=1, drivers=1, rollbacks=1),
    Rule.MARKER_PRINT: Bounds(epochs=1, drivers=1, crashes=2, forgets=1, unlogs=1, prunes=1),
    Rule.UNLOGGED: Bounds(epochs=1, drivers=1, runs=1, unlogs=1),
    Rule.FIRST_SURVEY: Bounds(epochs=1, drivers=1, rollbacks=1),
    Rule.SURVEY_ON: Bounds(drivers=1, runs=1, forgets=2, unlogs=1),
    Rule.LAST_SURVEY: TWO_DRIVERS,
    Rule.REAP_MANIFEST: Bounds(epochs=1, crashes=0, reaps=1, rivals_need=0),
}

# Rules that stand behind another one: alone their absence is harmless, and they matter once that one is gone too.
BACKED_UP = {
    Rule.REAP_ORDER: (Rule.REAP_MANIFEST, Bounds(epochs=1, drivers=1, reaps=1)),
    Rule.REAP_DECIDED: (Rule.REAP_MANIFEST, Bounds(epochs=1, drivers=1, reaps=1)),
}
# Rules that only save work, keep names apart or spare a wait: within these bounds nothing breaks without them.
COURTESY = {
    Rule.CHECK_BEFORE: TWO_DRIVERS,
    Rule.OWN_NUMBER: TWO_DRIVERS,
    Rule.ADOPT_CLOSES_LOWER: Bounds(epochs=1, runs=3),
}


@pytest.mark.parametrize("name", HOLDS)
def test_the_protocol_keeps_every_invariant(name: str) -> None:
    result = explore(Protocol(HOLDS[name]))
    print(f"{name}: {result}")
    assert not result.violation, str(result)


@pytest.mark.soak
@pytest.mark.parametrize("name", SOAK)
def test_the_protocol_keeps_every_invariant_within_wider_bounds(name: str) -> None:
    result = explore(Protocol(SOAK[name]))
    print(f"{name}: {result}")
    assert not result.violation, str(result)


@pytest.mark.parametrize("rule", NEEDED, ids=lambda rule: rule.name)
def test_a_rule_taken_away_brings_a_violation_back(rule: Rule) -> None:
    result = explore(Protocol(NEEDED[rule], frozenset({rule})))
    print(f"without {rule.name} ({rule}): {result}")
    assert result.violation, f"{result}: nothing needs the rule {rule.name}"


def test_the_bounds_of_the_ablations_hold_with_every_rule() -> None:
    """Those that are not within the bounds of a test above."""
    for bounds in set(NEEDED.values()) - set(SOAK.values()):
        if not any(is_within(bounds, wider) for wider in HOLDS.values()):
            result = explore(Protocol(bounds))
            assert not result.violation, str(result)


def is_within(bounds: Bounds, wider: Bounds) -> bool:
    """Whether all that the adversary may do within these bounds it may do within the wider ones."""
    same = all(getattr(bounds, name) == getattr(wider, name) for name in ("epochs", "drivers", "empty", "rivals_need"))
    budgets = ("runs", "crashes", "delays", "forgets", "unlogs", "rollbacks", "prunes", "reaps", "forget_while_running")
    return same and all(getattr(bounds, name) <= getattr(wider, name) for name in budgets)


@pytest.mark.parametrize("rule", BACKED_UP, ids=lambda rule: rule.name)
def test_a_backed_up_rule_matters_once_its_backing_is_gone(rule: Rule) -> None:
    backing, bounds = BACKED_UP[rule]
    assert not explore(Protocol(bounds, frozenset({rule}))).violation
    assert not explore(Protocol(bounds, frozenset({backing}))).violation
    result = explore(Protocol(bounds, frozenset({rule, backing})))
    print(f"without {rule.name} and {backing.name}: {result}")
    assert result.violation


@pytest.mark.soak
@pytest.mark.parametrize("rule", COURTESY, ids=lambda rule: rule.name)
def test_a_courtesy_is_not_what_keeps_the_protocol_safe(rule: Rule) -> None:
    result = explore(Protocol(COURTESY[rule], frozenset({rule})))
    assert not result.violation, str(result)


def test_a_decision_deleted_under_a_running_driver_is_beyond_the_protocol() -> None:
    """A publisher that has read the decision and a taker that no longer can have nothing left to agree by."""
    result = explore(Protocol(Bounds(epochs=1, forgets=1, forget_while_running=True)))
    assert result.violation


def test_every_rule_has_its_ablation() -> None:
    assert NEEDED.keys() | BACKED_UP.keys() | COURTESY.keys() == set(Rule)
