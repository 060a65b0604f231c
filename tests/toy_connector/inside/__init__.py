"""A memory as a source and as a sink, inside Spark."""
