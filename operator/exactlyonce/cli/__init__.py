"""The command line: run, explain, offsets and validate a stream from a file."""
