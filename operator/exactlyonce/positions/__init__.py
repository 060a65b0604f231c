"""Partitions, positions and ranges of a source, as opaque values. Performs no I/O."""
