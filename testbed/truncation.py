"""Cut a stopped broker's log: what an unclean leader election leaves of a partition, on one broker."""

from __future__ import annotations

import struct
from pathlib import Path

from testbed.kafka import Kafka

_HEADER = struct.Struct(">qi")
"""The begin of a batch of records: its base offset, and how many bytes follow. Source: DefaultRecordBatch, Kafka 4.1."""


def cut(kafka: Kafka, topic: str, partition: int, offset: int) -> None:
    """Take away the records from `offset` on, where a batch begins. The broker has to be stopped, with one segment."""
    logs = kafka.folder / "logs"
    folder = logs / f"{topic}-{partition}"
    segment = folder / f"{0:020d}.log"
    content = segment.read_bytes()
    segment.write_bytes(content[: _place_of(content, offset)])
    for file in folder.iterdir():
        if file.suffix in (".index", ".timeindex", ".snapshot"):
            file.unlink()
    _forget(logs)


def _place_of(content: bytes, offset: int) -> int:
    place = 0
    while place < len(content):
        base, length = _HEADER.unpack_from(content, place)
        if base >= offset:
            return place
        place += _HEADER.size + length
    raise ValueError(f"No batch begins at {offset}.")


def _forget(logs: Path) -> None:
    """Let the broker look at its logs when it starts, instead of believing how it was stopped."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (logs / name).unlink(missing_ok=True)
