"""Apache Doris as a sink, inside Spark. It is not in the registry yet."""
