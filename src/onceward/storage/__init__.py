"""Where the durable things of every step are kept: the write-once folder under the checkpoint."""

from onceward.storage.local import LocalStorage, local_path

__all__ = ["LocalStorage", "local_path"]
