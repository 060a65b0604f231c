"""Spark's checkpoint logs: read them, recognise every broken state by name, write new generations."""
