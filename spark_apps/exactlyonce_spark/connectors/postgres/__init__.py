"""The Postgres sink: fit rows to a table, copy them, and write them as the stream asks."""
