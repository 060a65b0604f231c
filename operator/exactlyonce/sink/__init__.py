"""The port to sinks that write files: which files count, and which never will."""
