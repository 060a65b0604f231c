"""Loads as a sink, inside Spark."""
