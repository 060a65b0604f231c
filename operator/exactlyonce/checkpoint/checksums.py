"""Hadoop's checksum files: the hidden `.N.crc` beside a log file `N`. Performs no I/O.

A header, the chunk's size, then a CRC-32 of each chunk (org.apache.hadoop.fs.ChecksumFileSystem). Spark 4.2.0 writes
them and does not look at them when it reads a log: it would run a batch with an altered range (proven in
tests/integration/test_checkpoint_restarts.py). So this project looks.
"""

from __future__ import annotations

import zlib

SUFFIX = ".crc"
_MAGIC = b"crc\0"
_HEADER_BYTES = 8


def name_of_checksums(name: str) -> str:
    """Return the name of the checksum file of a log file."""
    return f".{name}{SUFFIX}"


def contradict(checksums: bytes, content: bytes) -> bool:
    """Whether a checksum file was made from other content; one without its whole header was cut short and says nothing."""
    if len(checksums) < _HEADER_BYTES:
        return False
    chunk = int.from_bytes(checksums[len(_MAGIC) : _HEADER_BYTES], "big")
    if not checksums.startswith(_MAGIC) or chunk <= 0:
        return True
    parts = [content[start : start + chunk] for start in range(0, len(content), chunk)]
    return checksums[_HEADER_BYTES:] != b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
