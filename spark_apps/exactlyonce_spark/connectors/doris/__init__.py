"""Apache Doris as a sink, inside Spark."""
