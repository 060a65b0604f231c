"""Start drivers and tell how they ended."""
