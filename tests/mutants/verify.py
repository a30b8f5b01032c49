"""Looking at a checkpoint, and taking it back: what must be found, and what must not come twice."""

from __future__ import annotations

from mutants.mutant import Mutant

PARTS = ("tests/unit/verify/test_verify_parts.py",)
WHOLE = ("tests/protocol/test_verify.py",)
BACK = ("tests/protocol/test_restore.py",)

RULES = (
    Mutant(
        name="verify-compares-checksums",
        rule="A file is whole only if all its chunks have the checksums that stand beside it.",
        file="verify/files.py",
        old="if found == sums:",
        new="if sums.startswith(found[:4]):",
        tests=PARTS,
    ),
    Mutant(
        name="verify-unpacks-what-nothing-vouches-for",
        rule="A block of state without a checksum beside it is compared with its own hash.",
        file="verify/lz4_blocks.py",
        old="if len(found) != plain or xxh32(found) & 0x0FFFFFFF != expected:",
        new="if len(found) != plain:",
        tests=PARTS,
    ),
    Mutant(
        name="verify-wants-every-change-since-the-snapshot",
        rule="A version of the state needs every change after its newest snapshot.",
        file="verify/stores.py",
        old="    numbers = range(base + 1, version + 1)\n",
        new="    numbers = range(version, version + 1)\n",
        tests=PARTS,
    ),
    Mutant(
        name="verify-tries-every-older-snapshot",
        rule="A damaged snapshot does no harm where any older one, or none at all, makes the same state.",
        file="verify/store_files.py",
        old="        damaged.append(other.snapshot)\n",
        new="        if damaged:\n            return None\n        damaged.append(other.snapshot)\n",
        tests=PARTS,
    ),
    Mutant(
        name="verify-replays-no-more-changes-than-spark",
        rule="Spark passes over a damaged snapshot only where few enough changes have to be replayed.",
        file="verify/store_files.py",
        old="    if len(other.changes) > _REPLAYED_MOST:\n",
        new="    if False:\n",
        tests=PARTS,
    ),
    Mutant(
        name="verify-wants-a-snapshot-for-column-families",
        rule="State with column families is not made of changes alone.",
        file="verify/store_files.py",
        old="    if other.snapshot is None and store.has_families:\n",
        new="    if False:\n",
        tests=PARTS,
    ),
    Mutant(
        name="verify-follows-the-lineage-beyond-a-snapshot",
        rule="Under state format 2 a change of a version that has a snapshot leads further back.",
        file="verify/store_files.py",
        old="        oldest = min(ids)\n",
        new="        return ids\n",
        tests=PARTS,
    ),
    Mutant(
        name="verify-goes-by-the-lineage",
        rule="Under state format 2 a snapshot of another computation is not this version's.",
        file="verify/stores.py",
        old='return f"{number}_{ids[number]}.{suffix}" if ids is not None else f"{number}.{suffix}"',
        new='return next((n for n in present if n.startswith(f"{number}") and n.endswith(suffix)), f"{number}.{suffix}")',  # noqa: E501
        tests=PARTS,
    ),
    Mutant(
        name="verify-knows-how-far-compact-lists-are-apart",
        rule="A missing compact list between the two newest leads Spark astray.",
        file="verify/lists.py",
        old="if len(newest) == 2 and (newest[1] + 1) % (newest[1] - newest[0]):",
        new="if False:",
        tests=PARTS,
    ),
    Mutant(
        name="verify-looks-twice",
        rule="What one look finds may be the progress of a running job: only what two find is believed.",
        file="verify/look.py",
        old="        if before is not None and (lasting := before.errors & report.errors):\n",
        new="        if lasting := report.errors:\n",
        tests=WHOLE,
    ),
    Mutant(
        name="verify-reads-unpublished-segments",
        rule="A segment whose epoch is decided and not published is read to its end.",
        file="verify/ours.py",
        old="        if watermark < epoch <= decided:\n",
        new="        if watermark < epoch < decided:\n",
        tests=WHOLE,
    ),
    Mutant(
        name="verify-counts-what-a-start-puts-right",
        rule="A torn log entry that the next start puts right does not make a checkpoint damaged.",
        file="verify/look.py",
        old="    view = View(files, repaired(logs, repairs), quick, dropped)\n",
        new="    view = View(files, logs, quick, dropped)\n",
        tests=WHOLE,
    ),
    Mutant(
        name="restore-refuses-what-repeats",
        rule="Published epochs are not run again unless their repetition is accepted.",
        file="verify/restore.py",
        old="    if repeated is not None and not accepts_rollback:\n",
        new="    if False:\n",
        tests=BACK,
    ),
    Mutant(
        name="restore-asks-the-receipts",
        rule="An epoch whose receipts are in a target is published, whatever the markers say.",
        file="verify/look.py",
        old="    last = max([seen.published, *(r.epoch for r in proofs)])\n",
        new="    last = seen.published\n",
        tests=BACK,
    ),
    Mutant(
        name="restore-compares-the-barrier",
        rule="A published epoch runs again for nothing only with the barrier that it was published with.",
        file="verify/look.py",
        old='        if covered == {fingerprint_of((seen.view.logs.offsets[last].text or "").encode())}:\n',
        new="        if covered:\n",
        tests=BACK,
    ),
    Mutant(
        name="restore-keeps-the-next-barrier",
        rule="The epoch that runs again keeps its barrier, so that it covers the same rows.",
        file="verify/resume.py",
        old="    return Point(epoch, epoch + 1 if following is not None and following.problem is None else epoch)\n",
        new="    return Point(epoch, epoch)\n",
        tests=BACK,
    ),
    Mutant(
        name="restore-takes-later-state-out",
        rule="State of later versions goes too: a snapshot of the former computation would be taken for the new one's.",
        file="verify/restore.py",
        old="if (v := version_in(path.name)) and v > version]",
        new="if (v := version_in(path.name)) and v > version + 9]",
        tests=BACK,
    ),
    Mutant(
        name="restore-takes-state-out-before-the-logs",
        rule="A restore that dies half-way leaves nothing that Spark would start from: the state goes first.",
        file="verify/restore.py",
        old="    return Restoration(epoch, folder, tuple(_moves(seen, root, epoch)), repeated)\n",
        new="    return Restoration(epoch, folder, tuple(reversed([*_moves(seen, root, epoch)])), repeated)\n",
        tests=BACK,
    ),
    Mutant(
        name="restore-is-written-down-first",
        rule="What will be moved is durable before the first file moves, so that it can be finished.",
        file="verify/restore.py",
        old="    write_down(storage, plan, by=by, at=at, because=because)\n",
        new="",
        tests=BACK,
    ),
)
