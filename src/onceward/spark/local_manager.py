"""A checkpoint file manager for Spark: its files of a local checkpoint, written without a process for each of them.

Without Hadoop's native library, which PySpark does not have, Hadoop starts `chmod` for every file that it makes: six
times in an epoch that does nothing, and that was half of its time. The class below makes the same files in the same way
and sets their mode by a call of the system. Spark carries a compiler (Janino, for the code that it generates), so no
jar has to be brought into a session that somebody else has started: docs/decisions/0028.
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

LOCAL_MANAGER: Final = "onceward.LocalCheckpointFileManager"
_OPEN_LOADER: Final = "org.apache.spark.util.MutableURLClassLoader"

_SOURCE: Final = """
package onceward;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

public class LocalCheckpointFileManager extends FileSystemBasedCheckpointFileManager {
    // None where the path is on another kind of file system: all is left to it then.
    private final FileSystem local;

    public LocalCheckpointFileManager(Path path, Configuration configuration) throws IOException {
        super(path, configuration);
        if (path.getFileSystem(configuration) instanceof LocalFileSystem) {
            local = new LocalFileSystem(new WithoutProcesses());
            local.initialize(URI.create("file:///"), configuration);
        } else {
            local = null;
        }
    }

    @Override
    public void mkdirs(Path path) throws IOException {
        if (local == null) {
            super.mkdirs(path);
        } else {
            local.mkdirs(path, FsPermission.getDirDefault());
        }
    }

    @Override
    public FSDataOutputStream createTempFile(Path path) throws IOException {
        if (local == null) {
            return super.createTempFile(path);
        }
        // A folder that is gone, of a checkpoint that was removed or unmounted, is not made again.
        local.getFileStatus(path.getParent());
        return local.create(path, true);
    }

    // Where a file may be replaced, as those of state may, it is: the last computation of an epoch is what counts.
    @Override
    public void renameTempFile(Path from, Path to, boolean overwrite) throws IOException {
        if (local == null || !overwrite) {
            super.renameTempFile(from, to, overwrite);
        } else if (!local.rename(from, to)) {
            throw new IOException(from + " could not be renamed to " + to);
        }
    }

    public static class WithoutProcesses extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            String mode = permission.toString();
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(mode));
        }
    }
}
"""


def load_local_manager(spark: SparkSession) -> bool:
    """Let every thread of this JVM find `LOCAL_MANAGER` by its name. False where that cannot be: this Spark has other
    interfaces, none of which it promises to keep, or its classes come by another loader."""
    jvm: Any = spark._jvm
    try:
        loader = _open_loader(jvm)
        if loader is not None and not _is_loaded(loader):
            _load(jvm, loader)
        return loader is not None
    except (Py4JError, PySparkException, OSError) as error:
        log.debug("Spark's own file manager is taken, since ours cannot be made: %s", error)
        return False


def _open_loader(jvm: JVMView) -> Any | None:
    """The class loader to which Spark adds `spark.jars`: those of its tasks and its queries ask it."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != _OPEN_LOADER:
        loader = loader.getParent()
    return loader


def _is_loaded(loader: Any) -> bool:
    try:
        loader.loadClass(LOCAL_MANAGER)
    except Py4JError:
        return False
    return True


def _load(jvm: JVMView, loader: Any) -> None:
    """By a jar, which is open from the first class on and can be removed then. (A folder would be looked into again and
    again, by a name that somebody else might take.)"""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    classes = dict(compiler.getBytecodes())
    with tempfile.TemporaryDirectory() as folder:
        jar = Path(folder, "onceward.jar")
        with zipfile.ZipFile(jar, "w") as archive:
            for name, code in classes.items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        for name in classes:
            loader.loadClass(name)
