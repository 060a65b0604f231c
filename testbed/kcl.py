"""A real application of the Kinesis Client Library 3, in Java: it writes down each user record that it is given."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exactlyonce_spark import jars
from testbed.kinesis import Kinesis

KCL_LOCK = Path(__file__).with_name("kcl.lock")
_PROGRAM = Path(__file__).with_name("KclConsumer.java")
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Daws.cborEnabled=false"]
_MORE_SECONDS = 60
"""For the start and the end of the JVM, beside what the application is given."""

PATIENCE_SECONDS = 90

_HOLDING_SECONDS = 600
"""When an application that only holds its leases ends, should nobody end it."""


@dataclass(frozen=True, slots=True)
class Given:
    """A user record that the library gave to the application."""

    shard: str
    sequence_number: int
    sub_sequence_number: int
    data: str


def consume(
    service: Kinesis,
    stream: str,
    table: str,
    folder: Path,
    most: int,
    *,
    seconds: int = PATIENCE_SECONDS,
    version: int = 2,
) -> list[Given]:
    """Run the application until it was given so many user records, and has checkpointed the last; return them in their order.

    It runs as its own version 3, or as compatible with 2.

    Raises:
        AssertionError: if it is not given that many in time, with those that it was given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, log = folder / f"{table}.given", folder / f"{table}.log"
    command = _command(service, stream, table, written, most, seconds, version)
    with log.open("ab") as output:
        subprocess.run(command, stdout=output, stderr=output, timeout=seconds + _MORE_SECONDS, check=True)
    *lines, end = written.read_text().splitlines()
    found = [_given(line) for line in lines if not line.endswith(" ended")]
    assert end == "enough", f"{len(found)} of {most} user records came: {[given.data for given in found]}; see {log}"
    return found


@contextmanager
def holding(service: Kinesis, stream: str, table: str, folder: Path) -> Iterator[str]:
    """Run an application that takes leases and renews them, and takes no record; yield its worker's name.

    It is killed at the end, so its leases keep their owner.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = _command(service, stream, table, folder / f"{table}.held", 0, _HOLDING_SECONDS, 2)
    with (
        (folder / f"{table}.log").open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            yield f"worker-{process.pid}"
        finally:
            process.kill()


def _command(
    service: Kinesis, stream: str, table: str, written: Path, most: int, seconds: int, version: int
) -> list[str]:
    arguments = [service.endpoint, service.region, stream, table, str(written), str(most), str(seconds), str(version)]
    return ["java", *_JVM, "-cp", f"{jars.ensure_jars(KCL_LOCK)}/*", str(_PROGRAM), *arguments]


def _given(line: str) -> Given:
    shard, sequence_number, sub_sequence_number, data = line.split(" ", 3)
    return Given(shard, int(sequence_number), int(sub_sequence_number), data)
