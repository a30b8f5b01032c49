"""Where the durable things of every step are kept: the write-once folder under the checkpoint."""

from onceward.storage.durable import make_folders, sync_file, sync_file_system, sync_folder, write_back
from onceward.storage.local import LocalStorage, local_path
from onceward.storage.place import has_stable_inodes, is_same_directory, place_after, place_of

__all__ = [
    "LocalStorage",
    "has_stable_inodes",
    "is_same_directory",
    "local_path",
    "make_folders",
    "place_after",
    "place_of",
    "sync_file",
    "sync_file_system",
    "sync_folder",
    "write_back",
]
