"""Savepoints: all of it or nothing, only what is published, no byte unchecked, nobody led astray."""

from __future__ import annotations

from mutants.mutant import Mutant

WHOLE = ("tests/protocol/test_savepoints.py",)
KILLS = ("tests/protocol/test_savepoint_kills.py",)
PARTS = ("tests/unit/savepoints/test_savepoint_parts.py",)
CHANGED = ("tests/protocol/test_savepoint_mutations.py",)

RULES = (
    Mutant(
        name="savepoint-holds-only-what-is-published",
        rule="A savepoint is of an epoch that is decided and published.",
        file="savepoints/take.py",
        old="epoch = min(seen.published, logs.decided)",
        new="epoch = logs.decided",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-begins-again-when-its-epoch-was-purged",
        rule="What Spark let go of while it was copied may be half there.",
        file="savepoints/take.py",
        old="            self._check_unchanged(seen, made, epoch)\n",
        new="",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-is-renamed-when-it-is-whole",
        rule="Until all of it is there a savepoint has a hidden name.",
        file="savepoints/place.py",
        old='return folder / f"{_UNFINISHED}{_kernel()}-{name}-{secrets.token_hex(4)}"',
        new='return folder / f"{name}-{secrets.token_hex(4)}"',
        tests=KILLS,
    ),
    Mutant(
        name="savepoint-compares-every-byte",
        rule="A file is restored only if its bytes have the checksum that they were taken with.",
        file="savepoints/check.py",
        old="return None if found.crc == expected.crc else",
        new="return None if True else",
        tests=CHANGED,
    ),
    Mutant(
        name="savepoint-follows-no-link",
        rule="A link in a savepoint leads nowhere.",
        file="savepoints/copying.py",
        old="handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)",
        new="handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-names-stay-inside",
        rule="A name in a savepoint is one that a file of Spark's has, with no step upwards.",
        file="savepoints/document.py",
        old="    text = _matched(_PATH, name)\n",
        new="    text = str(name)\n",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-is-left-alone-while-another-works-in-it",
        rule="Only what nobody holds was left by a crash.",
        file="savepoints/place.py",
        old="        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        new="        pass\n",
        tests=PARTS,
    ),
    Mutant(
        name="savepoint-checks-hadoops-sums",
        rule="What Hadoop's checksums say is damaged is not sealed.",
        file="savepoints/hadoop_sums.py",
        old="    return _times(_power(8 * last), before) ^ int(found[-1])\n",
        new="    return int(found[-1])\n",
        tests=PARTS,
    ),
    Mutant(
        name="savepoint-first-start-looks-for-later-epochs",
        rule="A restored checkpoint whose targets are ahead is refused until that is accepted.",
        file="recovery/rollback.py",
        old="        if r.epoch > restored.accepted_of(r.generation, r.sink)\n",
        new="        if False\n",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-is-asked-for-once",
        rule="What the targets had at a start that was accepted is not asked for again.",
        file="recovery/identify.py",
        old="restored=begun(record.restored, survey.receipts),",
        new="restored=record.restored,",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-restores-a-new-generation",
        rule="A restored checkpoint never has the generation of the one that it came from.",
        file="savepoints/restore.py",
        old="generation=Generation(new_generation()),",
        new="generation=savepoint.generation,",
        tests=WHOLE,
    ),
    Mutant(
        name="savepoint-takes-the-tables-that-a-snapshot-names",
        rule="A RocksDB snapshot is nothing without its table files.",
        file="verify/store_files.py",
        old="            yield from (part for part, _ in _tables(files, store.folder, path))\n",
        new="            pass\n",
        tests=PARTS,
    ),
)
