"""Kafka as a source inside Spark."""
