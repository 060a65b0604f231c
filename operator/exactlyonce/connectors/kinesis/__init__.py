"""Kinesis streams as a source."""
