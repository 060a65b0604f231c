"""What runs inside the Spark driver and its executors: the batch loop, the sinks, the formats."""
