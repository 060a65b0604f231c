"""Kafka: the source."""
