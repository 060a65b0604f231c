import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.sql.types.DataTypes;

/**
 * Jobs of Spark that write ids to a table of Doris with Doris' own connector, one after the other in one JVM.
 *
 * A line of standard input is a job, as name=value with tabs between them. Names that begin with "doris." are handed to the
 * connector. A job with "rows" appends what "select" makes of the table "ids", of 0 to rows - 1, by "tasks" tasks; in the first
 * run of a task, its function "once" fails for the id "fails_at". A job with "input" is a structured stream of the JSON lines in that folder, with that "checkpoint",
 * until nothing is left. When a job is over, a line of standard output says "done", or "failed" and why.
 */
public final class DorisConnectorJobs {
    private DorisConnectorJobs() {}

    public static void main(String[] given) throws Exception {
        // Four runs of a task, as on a cluster; a local master has one unless it is told.
        SparkSession spark = SparkSession.builder().master("local[2,4]").appName("doris-connector")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.sql.session.timeZone", "UTC")
                .config("spark.ui.enabled", "false")
                .getOrCreate();
        spark.sparkContext().setLogLevel("WARN");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(told(spark, options(line)));
            System.out.flush();
        }
        spark.stop();
    }

    private static String told(SparkSession spark, Map<String, String> options) {
        try {
            if (options.containsKey("input")) {
                stream(spark, options);
            } else {
                append(spark, options);
            }
            return "done";
        } catch (Exception problem) {
            return "failed " + String.valueOf(problem.getMessage()).replace('\n', ' ');
        }
    }

    private static void append(SparkSession spark, Map<String, String> options) {
        long rows = Long.parseLong(options.remove("rows"));
        int tasks = Integer.parseInt(options.remove("tasks"));
        long failsAt = Long.parseLong(options.remove("fails_at"));
        spark.udf().register("once", (UDF1<Long, Long>) id -> {
            if (id == failsAt && TaskContext.get().attemptNumber() == 0) {
                throw new IllegalStateException("the first run of this task fails at " + id);
            }
            return id;
        }, DataTypes.LongType);
        spark.range(0, rows, 1, tasks).createOrReplaceTempView("ids");
        spark.sql(options.remove("select"))
                .write().format("doris").mode("append").options(options).save();
    }

    private static void stream(SparkSession spark, Map<String, String> options) throws Exception {
        String input = options.remove("input");
        String checkpoint = options.remove("checkpoint");
        spark.readStream().schema("id long, note string").json(input)
                .writeStream().format("doris").options(options)
                .option("checkpointLocation", checkpoint)
                .trigger(Trigger.AvailableNow())
                .start().awaitTermination();
    }

    private static Map<String, String> options(String line) {
        Map<String, String> found = new HashMap<>();
        for (String one : line.split("\t")) {
            int at = one.indexOf('=');
            found.put(one.substring(0, at), one.substring(at + 1));
        }
        return found;
    }
}
