"""The storage under all of it: write-once, whole, and on the disk before anyone relies on it."""

from __future__ import annotations

from mutants.mutant import Mutant

DISK = ("tests/unit/test_order_of_syncs.py",)
CONTRACT = ("tests/protocol/test_contract_of_fakes.py",)

RULES = (
    Mutant(
        name="create-is-write-once",
        rule="A file that stands is never overwritten, and its second creator is told so.",
        file="storage/local.py",
        old="os.link(unfinished, target)",
        new="os.replace(unfinished, target)",
        tests=CONTRACT,
    ),
    Mutant(
        name="fsync-of-the-content-before-its-name",
        rule="A created file's content is on the disk before the file has its name.",
        file="storage/local.py",
        old="                    file.flush()\n                    os.fsync(file.fileno())\n",
        new="                    file.flush()\n",
        tests=DISK,
    ),
    Mutant(
        name="fsync-of-the-folder",
        rule="A created file's name is on the disk before its creator is told that it stands.",
        file="storage/local.py",
        old="                sync_folder(target.parent)\n                return True\n",
        new="                return True\n",
        tests=DISK,
    ),
    Mutant(
        name="fsync-of-the-folder-by-the-loser",
        rule="Whoever loses a create acts on what stands: that must be on the disk as well.",
        file="storage/local.py",
        old="                    sync_folder(target.parent)\n                    return _is_our_own",
        new="                    return _is_our_own",
        tests=DISK,
    ),
    Mutant(
        name="unfinished-creations-are-hidden",
        rule="A file that is still being created is listed by nobody.",
        file="storage/local.py",
        old="if not name.startswith(_UNFINISHED)",
        new="if name",
        tests=DISK,
    ),
    Mutant(
        name="fsync-of-the-segment",
        rule="A segment's content is on the disk when its `close` returns.",
        file="storage/local.py",
        old="        os.fsync(self._file.fileno())\n",
        new="",
        tests=DISK,
    ),
    Mutant(
        name="fsync-of-the-segments-folder",
        rule="A segment's name is on the disk when its `close` returns.",
        file="storage/local.py",
        old="        sync_folder(self._folder)\n",
        new="",
        tests=DISK,
    ),
    Mutant(
        name="new-folders-are-synced",
        rule="The name of a folder that was made is on the disk: else nobody finds what is durable in it.",
        file="storage/durable.py",
        old="        sync_folder(folder.parent)\n",
        new="",
        tests=DISK,
    ),
    Mutant(
        name="failed-write-back-is-remembered",
        rule="A write that failed while rows still came in fails the `close`: the system tells of it only once.",
        file="storage/local.py",
        old="            self._error = error\n",
        new="            pass\n",
        tests=("tests/unit/storage/test_write_back.py",),
    ),
    Mutant(
        name="segment-is-never-overwritten",
        rule="A segment is streamed into a new file only.",
        file="storage/local.py",
        old='path.open("xb")',
        new='path.open("wb")',
        tests=CONTRACT,
    ),
    Mutant(
        name="names-are-spelled-once",
        rule="A transaction name parses only in the one spelling that we write.",
        file="identity.py",
        old="return name if str(name) == text else None",
        new="return name",
        tests=("tests/unit/test_identity.py",),
    ),
    Mutant(
        name="pending-of-this-generation-only",
        rule="What another generation of the job has staged is never touched.",
        file="identity.py",
        old="return self.is_of(job, sink) and self.generation == job.generation",
        new="return self.is_of(job, sink)",
        tests=("tests/unit/test_identity.py",),
    ),
)
