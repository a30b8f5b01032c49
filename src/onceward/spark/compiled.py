"""Java classes of ours in Spark's JVM.

Spark carries a compiler (Janino, for the code that it generates), so no jar has to be brought into a session that
somebody else has started: docs/decisions/0028.
"""

from __future__ import annotations

import logging
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger("onceward")

_OPEN_LOADER: Final = "org.apache.spark.util.MutableURLClassLoader"


def load_class(spark: SparkSession, name: str, source: str) -> bool:
    """Let every thread of this JVM find a class by its name. False where that cannot be: this Spark has other
    interfaces, none of which it promises to keep, or its classes come by another loader."""
    jvm: Any = spark._jvm
    try:
        loader = _open_loader(jvm)
        if loader is not None and not _is_loaded(loader, name):
            _load(jvm, loader, source)
        return loader is not None
    except (Py4JError, PySparkException, OSError) as error:
        log.debug("%s cannot be made, so this Spark is left as it is: %s", name, error)
        return False


def _open_loader(jvm: JVMView) -> Any | None:
    """The class loader to which Spark adds `spark.jars`: those of its tasks and its queries ask it."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != _OPEN_LOADER:
        loader = loader.getParent()
    return loader


def _is_loaded(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True


def _load(jvm: JVMView, loader: Any, source: str) -> None:
    """By a jar, which is open from the first class on and can be removed then. (A folder would be looked into again and
    again, by a name that somebody else might take.)"""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    classes = dict(compiler.getBytecodes())
    with tempfile.TemporaryDirectory() as folder:
        jar = Path(folder, "onceward.jar")
        with zipfile.ZipFile(jar, "w") as archive:
            for name, code in classes.items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        for name in classes:
            loader.loadClass(name)
