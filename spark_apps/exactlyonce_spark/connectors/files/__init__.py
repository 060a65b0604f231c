"""Files as a sink, inside Spark."""
