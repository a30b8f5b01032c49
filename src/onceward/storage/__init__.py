"""Where the durable things of every step are kept: the write-once folder under the checkpoint."""

from onceward.storage.durable import make_folders, sync_file, sync_file_system, sync_folder
from onceward.storage.local import LocalStorage, local_path

__all__ = ["LocalStorage", "local_path", "make_folders", "sync_file", "sync_file_system", "sync_folder"]
