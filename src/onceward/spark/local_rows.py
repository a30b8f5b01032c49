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
# end of their file. Hence every partition is read to its end.
SOURCE: Final = """
package onceward;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.rdd.RDD;
import org.apache.spark.serializer.JavaSerializer;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
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
    private static final Set NODES = new HashSet(Arrays.asList(new String[] {
        "WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "ColumnarToRowExec",
        "FileSourceScanExec"}));

    public static byte[] take(Dataset batch, int count, long batchBytes, long localBytes) throws IOException {
        InternalRow[] rows = compute(batch, count, batchBytes, localBytes);
        return rows == null ? FirstRows.take(batch, count, batchBytes) : FirstRows.toArrow(batch, rows, batchBytes);
    }

    // None where that is left to a job.
    public static InternalRow[] compute(Dataset batch, int count, long mostBytes, long localBytes) {
        RDD rows = simpleRows(batch, localBytes);
        if (rows == null) {
            return null;
        }
        TaskContextImpl context = TaskContext$.MODULE$.empty();
        try {
            Partition[] partitions = rows.partitions();
            RDD own = copyOf(rows, context);
            ArrayList found = new ArrayList();
            long bytes = 0;
            for (int number = 0; number < partitions.length; number++) {
                Iterator iterator = own.iterator(partitions[number], context);
                while (iterator.hasNext()) {
                    UnsafeRow row = (UnsafeRow) iterator.next();
                    if (found.size() < count) {
                        bytes += row.getSizeInBytes();
                        if (bytes > mostBytes) {
                            return null;
                        }
                        found.add(row.copy());
                    }
                }
            }
            report(context);
            return (InternalRow[]) found.toArray(new InternalRow[0]);
        } catch (Exception error) {
            return null;
        } finally {
            context.markTaskCompleted(Option.empty());
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
    private static RDD simpleRows(Dataset batch, long localBytes) {
        QueryExecution made = batch.queryExecution();
        LogicalPlan plan = made.analyzed();
        SparkContext spark = made.sparkSession().sparkContext();
        boolean hasItsSettings = SQLConf.get() == made.sparkSession().sessionState().conf();
        if (!spark.isLocal() || !hasItsSettings || !(plan instanceof LogicalRDD)) {
            return null;
        }
        RDD rows = ((LogicalRDD) plan).rdd();
        QueryExecution epoch = running(made, spark.getLocalProperty("sql.streaming.queryId"));
        if (epoch == null || epoch.toRdd() != rows || !isSimple(epoch.executedPlan())) {
            return null;
        }
        return epoch.optimizedPlan().stats().sizeInBytes().longValue() > localBytes ? null : rows;
    }

    private static QueryExecution running(QueryExecution made, String query) {
        Object[] active = made.sparkSession().sharedState().activeStreamingQueries().values().toArray();
        for (int number = 0; number < active.length; number++) {
            StreamExecution stream = (StreamExecution) active[number];
            if (stream.id().toString().equals(query)) {
                return stream.lastExecution();
            }
        }
        return null;
    }

    private static boolean isSimple(SparkPlan node) {
        String name = node.getClass().getName();
        if (!name.startsWith(EXECUTION) || !NODES.contains(name.substring(EXECUTION.length()))) {
            return false;
        }
        if (node instanceof FileSourceScanExec && !isSparks(((FileSourceScanExec) node).relation().fileFormat())) {
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

    private static boolean isSimple(Expression expression) {
        if (!expression.deterministic() || !isSparks(expression) || expression.getClass().getName().contains("UDF")) {
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

    private static boolean isSparks(Object thing) {
        return thing.getClass().getName().startsWith("org.apache.spark.sql.");
    }
}
"""
