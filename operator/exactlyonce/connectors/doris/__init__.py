"""Apache Doris as a sink: what its answers mean, its labels and its tables."""
