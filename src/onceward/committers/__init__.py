"""Memories of plain write-ahead sinks: in *publish*, which slots were sent, kept beside the target."""

from onceward.committers.file import FileCheckpointCommitter
from onceward.committers.mysql import MySQLCheckpointCommitter
from onceward.committers.postgres import PostgresCheckpointCommitter
from onceward.committers.redis import RedisCheckpointCommitter
from onceward.committers.sqlite import SQLiteCheckpointCommitter

__all__ = [
    "FileCheckpointCommitter",
    "MySQLCheckpointCommitter",
    "PostgresCheckpointCommitter",
    "RedisCheckpointCommitter",
    "SQLiteCheckpointCommitter",
]
