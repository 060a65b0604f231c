import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Queries from folders of JSON lines to a folder of JSON lines, with Spark's own file source and file sink, in any release of
 * Spark since 2.1: one file a batch, until all files are read.
 *
 * Each line of the standard input is a job, its parts separated by tabs: `plain` or `stateful`, the checkpoint, the output and
 * one or several source folders; or `read` and a folder, for the ids that a reader is shown. Each is answered by a line that
 * begins with `told`. Settings of Spark are given as properties of the JVM.
 */
public final class FileQuery {
    public static void main(String[] given) throws Exception {
        SparkSession session = SparkSession.builder().getOrCreate();
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            String[] job = line.split("\t");
            String told = job[0].equals("read") ? read(session, job[1]) : run(session, job);
            System.out.println("told\t" + told.replace('\n', ' '));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String read(SparkSession session, String folder) {
        try {
            List<String> ids = new ArrayList<>();
            for (Row row : session.read().schema(schema()).json(folder).orderBy("id").collectAsList()) {
                ids.add(String.valueOf(row.get(0)));
            }
            return "ended\t" + String.join(" ", ids);
        } catch (Exception problem) {
            return "failed\t\t" + causes(problem);
        }
    }

    private static String run(SparkSession session, String[] job) {
        StreamingQuery query = null;
        try {
            query = rows(session, job).writeStream().format("json").option("checkpointLocation", job[1]).start(job[2]);
            query.processAllAvailable();
            query.stop();
            return "ended\t" + batches(query);
        } catch (Exception problem) {
            return "failed\t" + (query == null ? "" : batches(query)) + "\t" + causes(problem);
        }
    }

    private static Dataset<Row> rows(SparkSession session, String[] job) {
        Dataset<Row> rows = null;
        for (int place = 3; place < job.length; place++) {
            Dataset<Row> some = session.readStream().schema(schema()).option("maxFilesPerTrigger", 1).json(job[place]);
            rows = rows == null ? some : rows.union(some);
        }
        if (!job[0].equals("stateful")) {
            return rows;
        }
        return rows.withWatermark("at", "1 minute")
            .groupBy(functions.window(functions.col("at"), "1 minute")).count()
            .selectExpr("`count` as id", "window.start as at");
    }

    private static StructType schema() {
        return new StructType().add("id", DataTypes.LongType).add("at", DataTypes.TimestampType);
    }

    /** Return the batches that ran to their end, each with how many records it read. */
    private static String batches(StreamingQuery query) {
        List<String> ran = new ArrayList<>();
        for (StreamingQueryProgress progress : query.recentProgress()) {
            if (progress.numInputRows() > 0) {
                ran.add(progress.batchId() + ":" + progress.numInputRows());
            }
        }
        return String.join(" ", ran);
    }

    private static String causes(Throwable problem) {
        List<String> told = new ArrayList<>();
        for (Throwable cause = problem; cause != null && told.size() < 10; cause = cause.getCause()) {
            told.add(cause.toString().replace('\t', ' '));
        }
        return String.join(" / ", told);
    }
}
