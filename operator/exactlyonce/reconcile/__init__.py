"""Observe once, decide without I/O, then act: what is done before a driver may start."""
