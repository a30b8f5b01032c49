"""What the user asked for, checked, in the form in which executors get it. Nothing here looks at the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onceward.errors import ConfigurationError
from onceward.identity import can_be_name, default_sink_name
from onceward.sinks.files.formats import FORMATS, FileFormat, FormatOptions
from onceward.sinks.files.layout import HIDDEN
from onceward.sinks.names import as_names


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `FileSink`, checked. Picklable."""

    path: Path
    format: str
    compression: str
    format_options: FormatOptions
    partition_by: tuple[str, ...]
    max_rows_per_file: int | None
    max_bytes_per_file: int | None

    @classmethod
    def parse(
        cls,
        path: Path,
        *,
        format: str,
        compression: str | None,
        options: Mapping[str, object] | None,
        partition_by: str | Sequence[str],
        max_rows_per_file: int | None,
        max_bytes_per_file: int | None,
    ) -> Options:
        """The settings, or a `ConfigurationError` that says which one is wrong."""
        if format not in FORMATS:
            raise ConfigurationError(f"unknown file format {format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        known = FORMATS[format].compressions
        compression = compression if compression is not None else FORMATS[format].default_compression
        if compression not in known:
            raise ConfigurationError(
                f"{format} files cannot be compressed with {compression!r}", hint=f"choose one of {', '.join(known)}"
            )
        partition_by = as_names(partition_by)
        if len(set(partition_by)) < len(partition_by):
            raise ConfigurationError(
                f"partition_by names a column twice: {', '.join(partition_by)}", hint="name each column once"
            )
        for option, value in (("max_rows_per_file", max_rows_per_file), ("max_bytes_per_file", max_bytes_per_file)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{option} is {value}", hint="give at least 1, or None")
        return cls(path, format, compression, dict(options or {}), partition_by, max_rows_per_file, max_bytes_per_file)

    @property
    def file_format(self) -> FileFormat:
        """How the files are written."""
        return FORMATS[self.format]

    @property
    def extension(self) -> str:
        """The end of every file's name."""
        return self.file_format.compressions[self.compression]

    @property
    def hidden(self) -> Path:
        """The folder in which files wait."""
        return self.path / HIDDEN


def default_name(folder: str) -> str:
    """What the sink is called unless its user names it: after the folder.

    The folder's name as it stands, where that can be a sink's: checkpoints hold such names, and in some of them letters
    that do not print, such as the joiners of Persian, which `default_sink_name` replaces.
    """
    name = f"files:{folder}"[:200].rstrip()
    return name if can_be_name(name) else default_sink_name("files", folder)
