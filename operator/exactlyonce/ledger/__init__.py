"""What landed: the sink side's record of streams, positions, batches and failures, and the rules to change it."""
