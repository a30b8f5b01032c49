"""Where the durable things of every step are kept: the write-once folder under the checkpoint."""

from onceward.storage.directory_id import directory_id_after, directory_id_of, has_stable_inodes, is_same_directory
from onceward.storage.durable import make_folders, sync_file, sync_file_system, sync_folder, write_back
from onceward.storage.local import LocalStorage, local_path

__all__ = [
    "LocalStorage",
    "directory_id_after",
    "directory_id_of",
    "has_stable_inodes",
    "is_same_directory",
    "local_path",
    "make_folders",
    "sync_file",
    "sync_file_system",
    "sync_folder",
    "write_back",
]
