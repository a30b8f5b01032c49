"""Java, which Spark needs and pip does not bring: why it did not start, in words that say what to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from onceward.errors import ConfigurationError

OLDEST: Final = 17
"""What Spark 4 runs on."""
_HINT: Final = (
    f"install Java {OLDEST} or newer (on Debian: apt install openjdk-{OLDEST}-jre-headless); "
    "if there is one elsewhere, set JAVA_HOME to its folder"
)


def missing_java(environment: Mapping[str, str]) -> ConfigurationError | None:
    """What is wrong with the Java that Spark would take, which is what JAVA_HOME says or else the PATH; None: nothing
    that can be seen."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    found = shutil.which(program, path=environment.get("PATH", ""))
    if found is None:
        where = f"JAVA_HOME is {home}, and it has no bin/java" if home else "there is none on the PATH"
        return ConfigurationError(f"Spark needs Java, and {where}", hint=_HINT)
    version = _version(found)
    if version is None or version >= OLDEST:
        return None
    return ConfigurationError(f"Spark needs Java {OLDEST} or newer, and {found} is Java {version}", hint=_HINT)


def _version(program: str) -> int | None:
    """17 of `openjdk version "17.0.2"`, 8 of `java version "1.8.0_292"`."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(said[1]) if said else None
