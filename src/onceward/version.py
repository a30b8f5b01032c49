"""The versions, as the installed packages say."""

from importlib.metadata import PackageNotFoundError, version

__version__ = version("onceward")


def spark_version() -> str:
    """Of PySpark, without importing it."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "unknown"
