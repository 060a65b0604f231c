"""What a checkpoint or an output folder of Spark holds, ours or not, and what a restart of Spark would do with it.

`gather` looks once; everything else performs no I/O. Nothing here changes a file.
"""
