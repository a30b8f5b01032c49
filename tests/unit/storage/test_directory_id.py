"""File systems that answer in their own way: names that exist because we made them, inodes that change."""

import os
from pathlib import Path

import pytest

from onceward.storage import LocalStorage, directory_id_of, is_same_directory
from onceward.storage.directory_id import has_stable_inodes

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /data rw shared:1 - nfs4 filer:/export rw
31 30 254:1 / /data/local rw - xfs /dev/vdb rw
32 27 0:41 / /with\\040blank rw - fuse.s3fs s3fs rw
33 27 254:2 / /covered rw - ext4 /dev/vdc rw
34 27 0:42 / /covered rw - overlay overlay rw
35 27 0:43 / /share rw - cifs //server/share rw
36 27 0:44 / /host rw - 9p host rw
"""


def retransmitted(source: object, target: object) -> None:
    """NFS: the link was made, its answer was lost, and the second request finds the first one's work."""
    real_link(source, target)
    raise FileExistsError(17, "File exists", os.fspath(target))


real_link = os.link


def test_s89_a_name_that_exists_because_this_call_made_it_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(os, "link", retransmitted)
    assert storage.create("manifests/1.0.json", b"ours")
    assert storage.read("manifests/1.0.json") == b"ours"
    assert os.listdir(tmp_path / "manifests") == ["1.0.json"]


def test_s89_so_it_is_where_only_the_count_of_names_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's cache does not know the name yet."""

    def cached(self: Path, **named: bool) -> os.stat_result:
        if self.name == "a":
            raise FileNotFoundError(self)
        return real_stat(self, **named)

    real_stat = Path.stat
    monkeypatch.setattr(os, "link", retransmitted)
    monkeypatch.setattr(Path, "stat", cached)
    assert LocalStorage(tmp_path).create("a", b"ours")


def test_s89_a_name_that_another_made_is_not_ours(tmp_path: Path) -> None:
    """Also when both wrote the same."""
    storage = LocalStorage(tmp_path)
    assert storage.create("a", b"same")
    assert not storage.create("a", b"same")
    assert not storage.create("a", b"other")


@pytest.mark.parametrize(
    ("folder", "stable"),
    [
        ("/var/checkpoint", True),
        ("/data/checkpoint", False),
        ("/data/local/checkpoint", True),
        ("/database", True),
        ("/with blank/checkpoint", False),
        ("/covered/checkpoint", False),
        ("/share/checkpoint", False),
        ("/host", False),
    ],
)
def test_s89_inodes_are_believed_by_the_kind_of_the_file_system(folder: str, stable: bool) -> None:
    assert has_stable_inodes(Path(folder), MOUNTS) is stable


def test_s89_where_inodes_change_the_place_is_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.storage.directory_id.has_stable_inodes", lambda folder: True)
    assert directory_id_of(tmp_path) == f"inode {tmp_path.stat().st_ino}"
    monkeypatch.setattr("onceward.storage.directory_id.has_stable_inodes", lambda folder: False)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert directory_id_of(link) == directory_id_of(tmp_path) == f"path {tmp_path.resolve()}"


@pytest.mark.parametrize(
    ("recorded", "now", "same"),
    [
        ("inode 7", "inode 7", True),
        ("inode 7", "inode 8", False),
        ("path /a", "path /a", True),
        ("path /a", "path /b", False),
        pytest.param("inode 7", "path /a", True, id="recorded by a release that believed it"),
        pytest.param("path /a", "inode 7", False, id="brought to a disk"),
    ],
)
def test_s89_places_are_compared(recorded: str, now: str, same: bool) -> None:
    assert is_same_directory(recorded, now) is same
