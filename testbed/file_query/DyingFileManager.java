import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

/**
 * Spark's own way to write its logs, in a process that dies just before it begins a file whose path ends with the property
 * `die.before`.
 */
public final class DyingFileManager extends FileContextBasedCheckpointFileManager {
    public DyingFileManager(Path path, Configuration configuration) {
        super(path, configuration);
    }

    @Override
    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        if (path.toString().endsWith(System.getProperty("die.before", "nothing"))) {
            Runtime.getRuntime().halt(137);
        }
        return super.createAtomic(path, overwrite);
    }
}
