"""A name for a directory itself, by which a checkpoint knows whether it is the one that it was made in.

On a disk that is the inode: moving keeps it, copying does not. Where inodes may change under a directory that nobody
touched (a network or layered file system that makes its numbers up), it is the path, and moving counts as copying.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_UNSTABLE = re.compile(
    r"nfs\d?|fuse(?:\..*|blk)?|(?:fuse-)?overlay(?:fs)?|aufs|9p|cifs|smb\d?|smbfs|virtiofs|vboxsf|afs"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")
_INODE, _PATH = "inode ", "path "


def directory_id_of(folder: Path) -> str:
    """The name of an existing directory."""
    return directory_id_after(folder, folder)


def directory_id_after(folder: Path, final: Path) -> str:
    """The name that a directory will have once a folder above it was renamed, so that its path is `final`."""
    resolved = folder.resolve()
    if has_stable_inodes(resolved):
        return f"{_INODE}{resolved.stat().st_ino}"
    return f"{_PATH}{final.resolve()}"


def is_same_directory(recorded: str, now: str) -> bool:
    """Whether a recorded place is this one. An inode that was recorded where inodes change says nothing."""
    return recorded == now or (recorded.startswith(_INODE) and now.startswith(_PATH))


def has_stable_inodes(folder: Path, mounts: str | None = None) -> bool:
    """By the kind of the file system that it is mounted from. Where the system does not tell, inodes are believed."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return True
    kind, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of two on one mount point the later one lies on top.
        if folder.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = after.split(" ")[0], len(point.parts)
    return _UNSTABLE.fullmatch(kind) is None
