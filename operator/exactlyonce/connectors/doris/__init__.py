"""Apache Doris as a sink: what its answers mean, its labels and its tables. It is not in the registry yet."""
