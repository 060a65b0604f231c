"""Loads as a sink, outside of Spark."""
