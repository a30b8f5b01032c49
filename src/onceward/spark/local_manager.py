"""A checkpoint file manager for Spark: its files of a local checkpoint, written without a process for each of them.

Without Hadoop's native library, which PySpark does not have, Hadoop starts `chmod` for every file that it makes: six
times in an epoch that does nothing, and that was half of its time. The class below makes the same files in the same way
and sets their mode by a call of the system: docs/decisions/0028.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from onceward.spark.compiled import load_class

LOCAL_MANAGER: Final = "onceward.LocalCheckpointFileManager"

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
    """Let every thread of this JVM find `LOCAL_MANAGER` by its name; False where that cannot be."""
    return load_class(spark, LOCAL_MANAGER, _SOURCE)
