"""Kinesis as a source inside Spark."""
