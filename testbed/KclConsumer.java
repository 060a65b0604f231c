import java.io.PrintStream;
import java.io.FileOutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.CoordinatorConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * An application of the Kinesis Client Library: it writes down each user record that it has checkpointed, and ends after so many
 * of them. A machine that is busy costs it leases; what it is given again for that is written down once. Without a lease in the
 * table it would start with what arrives next, and so give nothing. Of no user record at all, it holds its leases and takes none.
 *
 * Arguments: endpoint, region, stream, table, file to write to, how many user records, seconds until it gives up, and as which
 * version it runs: 2 is the mode in which version 3 is compatible with it.
 */
public final class KclConsumer {
    private final PrintStream written;
    private final AtomicLong left;
    private final CountDownLatch enough = new CountDownLatch(1);

    private KclConsumer(PrintStream written, long most) {
        this.written = written;
        this.left = new AtomicLong(most);
    }

    public static void main(String[] given) throws Exception {
        URI endpoint = URI.create(given[0]);
        Region region = Region.of(given[1]);
        String stream = given[2];
        String table = given[3];
        try (PrintStream file = new PrintStream(new FileOutputStream(given[4]), true, StandardCharsets.UTF_8)) {
            KclConsumer consumer = new KclConsumer(file, Long.parseLong(given[5]));
            boolean done = consumer.run(endpoint, region, stream, table, Long.parseLong(given[6]), modeOf(given[7]));
            file.println(done ? "enough" : "gave up");
        }
        Runtime.getRuntime().halt(0); // as one that is killed: its leases keep their owner
    }

    private boolean run(URI endpoint, Region region, String stream, String table, long seconds,
            CoordinatorConfig.ClientVersionConfig mode) throws Exception {
        StaticCredentialsProvider login = StaticCredentialsProvider.create(AwsBasicCredentials.create("testing", "testing"));
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder()
                .endpointOverride(endpoint).region(region).credentialsProvider(login)
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1)).build();
        DynamoDbAsyncClient dynamo =
                DynamoDbAsyncClient.builder().endpointOverride(endpoint).region(region).credentialsProvider(login).build();
        CloudWatchAsyncClient cloudWatch =
                CloudWatchAsyncClient.builder().endpointOverride(endpoint).region(region).credentialsProvider(login).build();
        InitialPositionInStreamExtended latest =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.LATEST);
        ConfigsBuilder configs = new ConfigsBuilder(
                new SingleStreamTracker(stream, latest), table, kinesis, dynamo, cloudWatch, "worker-" + ProcessHandle.current().pid(), Taking::new);
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .parentShardPollIntervalMillis(200L)
                        .shardConsumerDispatchPollIntervalMillis(100L)
                        .clientVersionConfig(mode),
                configs.leaseManagementConfig().failoverTimeMillis(6000L).shardSyncIntervalMillis(2000L)
                        .cleanupLeasesUponShardCompletion(false),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(
                        new PollingConfig(stream, kinesis).idleTimeBetweenReadsInMillis(200L)));
        Thread thread = new Thread(scheduler, "scheduler");
        thread.setDaemon(true);
        thread.start();
        return enough.await(seconds, TimeUnit.SECONDS);
    }

    private static CoordinatorConfig.ClientVersionConfig modeOf(String version) {
        return switch (version) {
            case "2" -> CoordinatorConfig.ClientVersionConfig.CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X;
            case "3" -> CoordinatorConfig.ClientVersionConfig.CLIENT_VERSION_CONFIG_3X;
            default -> throw new IllegalArgumentException(version);
        };
    }

    private final class Taking implements ShardRecordProcessor {
        private String shard;

        @Override
        public void initialize(InitializationInput input) {
            shard = input.shardId();
        }

        @Override
        public void processRecords(ProcessRecordsInput input) {
            synchronized (KclConsumer.this) {
                int most = (int) Math.min(left.get(), input.records().size());
                if (most <= 0) {
                    return;
                }
                List<KinesisClientRecord> records = input.records().subList(0, most);
                KinesisClientRecord last = records.get(most - 1);
                try {
                    input.checkpointer().checkpoint(last.sequenceNumber(), last.subSequenceNumber());
                } catch (Exception problem) {
                    return; // the lease is lost: whoever has it next is given them again, so they are not written down here
                }
                for (KinesisClientRecord record : records) {
                    written.println(shard + " " + record.sequenceNumber() + " " + record.subSequenceNumber() + " "
                            + StandardCharsets.UTF_8.decode(record.data().duplicate()));
                }
                left.addAndGet(-most);
                if (left.get() <= 0) {
                    enough.countDown();
                }
            }
        }

        @Override
        public void leaseLost(LeaseLostInput input) {}

        @Override
        public void shardEnded(ShardEndedInput input) {
            try {
                input.checkpointer().checkpoint();
                written.println(shard + " ended");
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        }

        @Override
        public void shutdownRequested(ShutdownRequestedInput input) {}
    }
}
