"""Operators by name: which changes of a pipeline must be refused, and whose state becomes whose in a restored copy."""

from __future__ import annotations

from mutants.mutant import Mutant

GUARD = ("tests/unit/operators/test_guard.py",)
MAPPING = ("tests/unit/operators/test_mapping.py",)
REWRITE = ("tests/unit/operators/test_rewrite.py",)
READ = ("tests/unit/operators/test_topology.py",)

RULES = (
    Mutant(
        name="guard-compares-kinds",
        rule="State of one kind of operator is not given to another kind.",
        file="operators/guard.py",
        old="return _agree(old.kind or None, new.kind) and _agree(old.name, new.name)",
        new="return _agree(old.name, new.name)",
        tests=GUARD,
    ),
    Mutant(
        name="guard-compares-keys",
        rule="Two operators of one kind that were swapped are told apart by their key columns.",
        file="operators/guard.py",
        old=" and _agree(old.keys, new.keys)",
        new="",
        tests=GUARD,
    ),
    Mutant(
        name="guard-compares-names",
        rule="Two operators that only names tell apart are told apart by them.",
        file="operators/guard.py",
        old="_agree(old.kind or None, new.kind) and _agree(old.name, new.name)",
        new="_agree(old.kind or None, new.kind)",
        tests=GUARD,
    ),
    Mutant(
        name="guard-misses-none",
        rule="An operator that is only in the checkpoint, or only in the pipeline, does not fit.",
        file="operators/guard.py",
        old="old is None or new is None or not fits(old, new)",
        new="old is not None and new is not None and not fits(old, new)",
        tests=GUARD,
    ),
    Mutant(
        name="guard-compares-names-of-sources",
        rule="Two sources that were swapped are told apart by their names.",
        file="operators/guard.py",
        old="_agree(old.kind, new.kind) and _agree(old.name, new.name)\n",
        new="_agree(old.kind, new.kind)\n",
        tests=GUARD,
    ),
    Mutant(
        name="guard-sees-a-renamed-source",
        rule="A source that Spark names is not taken for a new one when another has gone: it would be read again.",
        file="operators/guard.py",
        old="renamed = bool(old.keys() - new.keys()) and bool(new.keys() - old.keys())",
        new="renamed = False",
        tests=GUARD,
    ),
    Mutant(
        name="names-stay",
        rule="A start that gives no names does not take those away that the checkpoint has.",
        file="operators/guard.py",
        old="replace(one, name=called.get(one.number))",
        new="one",
        tests=GUARD,
    ),
    Mutant(
        name="mapping-goes-by-name-first",
        rule="A name decides whose state it is, before kind, key and place.",
        file="operators/mapping.py",
        old="named = [(by_name[one.name], one) for one in new if one.name in by_name]",
        new="named = [(by_name[one.name], one) for one in new if one.name in by_name and len(new) == len(old) == 1]",
        tests=MAPPING,
    ),
    Mutant(
        name="mapping-guesses-nothing",
        rule="Where two could be meant a restore is refused.",
        file="operators/mapping.py",
        old="    if unclear_old or unclear_new:\n",
        new="    if unclear_old and unclear_new:\n",
        tests=MAPPING,
    ),
    Mutant(
        name="mapping-leaves-nothing-behind-unasked",
        rule="State that no operator takes stops a restore unless it may be left.",
        file="operators/mapping.py",
        old='        _refuse_left_behind("stateful operators", operators)\n',
        new="",
        tests=MAPPING,
    ),
    Mutant(
        name="mapping-keeps-other-names-apart",
        rule="Two operators with different names are never the same one.",
        file="operators/mapping.py",
        old="return (one.name is None or other.name is None) and fitting(one, other)",
        new="return fitting(one, other)",
        tests=MAPPING,
    ),
    Mutant(
        name="rewrite-moves-the-ids",
        rule="Under state format 2 the ids in the commit move with the state.",
        file="operators/rewrite.py",
        old="return {new: ids[str(old)] for old, new in kept if str(old) in ids}",
        new="return {old: ids[str(old)] for old, new in kept if str(old) in ids}",
        tests=REWRITE,
    ),
    Mutant(
        name="rewrite-lets-two-change-places",
        rule="All folders leave their place before one takes another's.",
        file="operators/rewrite.py",
        old='(folder / old).rename(folder / f"{_AWAY}{new}"))',
        new='(folder / old).rename(folder / f"{_AWAY}{old}"))',
        tests=REWRITE,
    ),
    Mutant(
        name="rewrite-drops-checksums",
        rule="Hadoop's checksum of a file that is written anew goes: Spark would refuse the file.",
        file="operators/rewrite.py",
        old='    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)\n',
        new="",
        tests=REWRITE,
    ),
    Mutant(
        name="rewrite-refuses-before-it-moves",
        rule="A new operator that cannot be given an empty state is refused before anything moves.",
        file="operators/rewrite.py",
        old="            emptiness.refuse(operator)\n",
        new="            pass\n",
        tests=REWRITE,
    ),
    Mutant(
        name="topology-partitions-by-the-barrier",
        rule="How many partitions there are says the newest barrier, not the operator's description.",
        file="operators/read.py",
        old="partitions=count if is_single or partitions is None else partitions,",
        new="partitions=count,",
        tests=READ,
    ),
)
