"""The rows of a small epoch, computed in the thread that asks for them, without a job of Spark's.

Spark hands a job through four of its threads, and its tasks over as bytes: for ten rows of a file that takes several
times as long as reading them. So where the plan of an epoch does nothing but read files of a few kilobytes, choose
among their rows and compute columns by Spark's own functions, on a local master, its partitions are read here, one
after the other. Anything else, and whatever fails here, goes by a job as ever, with its errors: docs/decisions/0029.
"""

from __future__ import annotations

from typing import Final

LOCAL_ROWS: Final = "onceward.LocalRows"

# There is no task, so no `TaskContext.get()`: Spark's readers know that from inferring schemas, and are closed at the
# end of their file. Hence every partition is read to its end. Nor can it be cancelled as a job is: a timer ends it.
#
# A stop interrupts this thread. Where that hits a reader, its rows must not pass for all: what was computed counts only
# if the query is still active afterwards, and files whose errors are ignored are left to a job.
SOURCE: Final = """
package onceward;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.rdd.RDD;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.AccumulatorContext;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.collection.mutable.ArrayBuffer;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

public class LocalRows {
    private static final ClassTag ANY = ClassTag$.MODULE$.Any();
    private static final String EXECUTION = "org.apache.spark.sql.execution.";
    private static final String EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions.";
    private static final Set NODES = named(EXECUTION, new String[] {
        "WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "ColumnarToRowExec",
        "FileSourceScanExec"});
    private static final Set FORMATS = named(EXECUTION + "datasources.", new String[] {
        "csv.CSVFileFormat", "json.JsonFileFormat", "orc.OrcFileFormat", "parquet.ParquetFileFormat",
        "text.TextFileFormat"});
    // Runs that have failed here, or were slow: each epoch would be read twice.
    private static final Set LEFT = ConcurrentHashMap.newKeySet();
    private static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, new Daemons());

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    private static class Daemons implements ThreadFactory {
        public Thread newThread(Runnable work) {
            Thread thread = new Thread(work, "onceward-local-rows");
            thread.setDaemon(true);
            return thread;
        }
    }

    private static class Interrupting implements Runnable {
        private final TaskContextImpl context;

        Interrupting(TaskContextImpl context) {
            this.context = context;
        }

        public void run() {
            context.markInterrupted("it takes long");
        }
    }

    public static byte[] take(Dataset batch, int count, long batchBytes, long localBytes, long mostMs)
            throws IOException {
        InternalRow[] rows = compute(batch, count, batchBytes, localBytes, mostMs);
        return rows == null ? FirstRows.take(batch, count, batchBytes) : FirstRows.toArrow(batch, rows, batchBytes);
    }

    // None where that is left to a job.
    public static InternalRow[] compute(Dataset batch, int count, long mostBytes, long localBytes, long mostMs) {
        StreamExecution stream = running(batch.queryExecution());
        if (stream == null || LEFT.contains(stream.runId())) {
            return null;
        }
        TaskContextImpl context = TaskContext$.MODULE$.empty();
        Future tooLong = TIMER.schedule(new Interrupting(context), mostMs, TimeUnit.MILLISECONDS);
        InternalRow[] found = null;
        try {
            RDD rows = simpleRows(batch, stream, localBytes);
            if (rows == null) {
                return null;
            }
            found = read(rows, context, count, mostBytes);
            context.markTaskCompleted(Option.empty());
        } catch (Throwable error) {
            found = null;
            close(context);
        } finally {
            tooLong.cancel(false);
        }
        if (!stream.isActive()) {
            // What was computed may have lost the interruption, and rows by it.
            Thread.currentThread().interrupt();
            return null;
        }
        if (found == null) {
            LEFT.add(stream.runId());
        } else if (found.length < count) {
            report(context);
        }
        return found;
    }

    // All rows or the first of them; none where even those are too many bytes.
    private static InternalRow[] read(RDD rows, TaskContextImpl context, int count, long mostBytes) {
        RDD own = copyOf(rows, context);
        Partition[] partitions = rows.partitions();
        ArrayList found = new ArrayList();
        long bytes = 0;
        for (int number = 0; number < partitions.length; number++) {
            Iterator iterator = own.iterator(partitions[number], context);
            while (iterator.hasNext()) {
                context.killTaskIfInterrupted();
                UnsafeRow row = (UnsafeRow) iterator.next();
                if (found.size() < count && bytes <= mostBytes) {
                    bytes += row.getSizeInBytes();
                    found.add(row.copy());
                }
            }
        }
        return bytes > mostBytes ? null : (InternalRow[]) found.toArray(new InternalRow[0]);
    }

    private static void close(TaskContextImpl context) {
        try {
            context.markTaskCompleted(Option.empty());
        } catch (Throwable error) {
            return;
        }
    }

    // As a task gets it. Computing changes it, and what has been changed cannot be sent to tasks any more.
    private static RDD copyOf(RDD rows, TaskContextImpl context) {
        SerializerInstance serializer = new JavaSerializer(rows.sparkContext().conf()).newInstance();
        ByteBuffer bytes = serializer.serialize(rows, ANY);
        TaskContext$.MODULE$.setTaskContext(context);
        try {
            return (RDD) serializer.deserialize(bytes, Thread.currentThread().getContextClassLoader(), ANY);
        } finally {
            TaskContext$.MODULE$.unset();
        }
    }

    // What the copy has counted, to Spark's own counters, as of a task that has ended: rows in, for its progress.
    private static void report(TaskContextImpl context) {
        ArrayBuffer counted = context.taskMetrics()._externalAccums();
        for (int number = 0; number < counted.size(); number++) {
            AccumulatorV2 copy = (AccumulatorV2) counted.apply(number);
            Option original = AccumulatorContext.get(copy.id());
            if (original.isDefined()) {
                ((AccumulatorV2) original.get()).merge(copy);
            }
        }
    }

    // Of an epoch whose plan is simple enough; none of others.
    private static RDD simpleRows(Dataset batch, StreamExecution stream, long localBytes) {
        QueryExecution made = batch.queryExecution();
        QueryExecution epoch = stream.lastExecution();
        boolean hasItsSettings = SQLConf.get() == made.sparkSession().sessionState().conf();
        RDD rows = rowsOf(made.analyzed());
        // Another plan with cached data: the user keeps the rows of this batch.
        if (!hasItsSettings || epoch == null || rows == null || rows != rowsOf(made.withCachedData())
                || rows != epoch.toRdd() || !isSimple(epoch.executedPlan())) {
            return null;
        }
        return bytesOf(rows.partitions()) > localBytes ? null : rows;
    }

    private static RDD rowsOf(LogicalPlan plan) {
        return plan instanceof LogicalRDD ? ((LogicalRDD) plan).rdd() : null;
    }

    // Whole files, of tables too, whatever the statistics of their plan say.
    private static long bytesOf(Partition[] partitions) {
        long bytes = 0;
        for (int number = 0; number < partitions.length; number++) {
            PartitionedFile[] files = ((FilePartition) partitions[number]).files();
            for (int file = 0; file < files.length; file++) {
                bytes += files[file].length();
            }
        }
        return bytes;
    }

    private static StreamExecution running(QueryExecution made) {
        SparkContext spark = made.sparkSession().sparkContext();
        String query = spark.isLocal() ? spark.getLocalProperty("sql.streaming.queryId") : null;
        Object[] active = made.sparkSession().sharedState().activeStreamingQueries().values().toArray();
        for (int number = 0; number < active.length; number++) {
            StreamExecution stream = (StreamExecution) active[number];
            if (stream.id().toString().equals(query)) {
                return stream;
            }
        }
        return null;
    }

    private static boolean isSimple(SparkPlan node) {
        if (!NODES.contains(node.getClass().getName())) {
            return false;
        }
        if (node instanceof FileSourceScanExec && !isSimple(((FileSourceScanExec) node).relation())) {
            return false;
        }
        Seq expressions = node.expressions();
        for (int number = 0; number < expressions.size(); number++) {
            if (!isSimple((Expression) expressions.apply(number))) {
                return false;
            }
        }
        Seq children = node.children();
        for (int number = 0; number < children.size(); number++) {
            if (!isSimple((SparkPlan) children.apply(number))) {
                return false;
            }
        }
        return true;
    }

    // What is passed over in silence could as well be the rest of a file.
    private static boolean isSimple(HadoopFsRelation files) {
        FileSourceOptions options = new FileSourceOptions(files.options());
        return FORMATS.contains(files.fileFormat().getClass().getName())
            && !options.ignoreCorruptFiles() && !options.ignoreMissingFiles();
    }

    // Spark's own functions; those of `objects` call any class by its name.
    private static boolean isSimple(Expression expression) {
        String name = expression.getClass().getName();
        if (!expression.deterministic() || !name.startsWith(EXPRESSIONS) || name.startsWith(EXPRESSIONS + "objects.")
                || expression instanceof UserDefinedExpression || name.contains("UDF")) {
            return false;
        }
        Seq children = expression.children();
        for (int number = 0; number < children.size(); number++) {
            if (!isSimple((Expression) children.apply(number))) {
                return false;
            }
        }
        return true;
    }

    private static Set named(String where, String[] names) {
        Set found = new HashSet();
        for (int number = 0; number < names.length; number++) {
            found.add(where + names[number]);
        }
        return found;
    }
}
"""
