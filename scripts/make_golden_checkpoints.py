"""Regenerate the golden checkpoints under tests/golden/checkpoints/, from real Spark runs.

    python scripts/make_golden_checkpoints.py [--to DIR]

Each folder is one state of a checkpoint directory, named in docs/checkpoint-states.md. What Spark can be brought to write
is recorded from runs over a Kafka broker of the testbed; every broken state is made from such a recording by one damage
below. A rerun gives the same meaning: query ids, run times and the names of state files differ, and nothing depends on them.
Nothing is edited to hide that.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from testbed.golden import ENDS, ROCKSDB, START, GoldenTopic, run_to_end
from testbed.kafka import Kafka
from testbed.spark import local_session

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "checkpoints"

_SINK_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSinkEvolution"

Damage = Callable[[Path], None]


def remove(*names: str) -> Damage:
    """Return the damage that takes files away, each with its checksum."""

    def damage(checkpoint: Path) -> None:
        for name in names:
            (checkpoint / name).unlink()
            _checksum_of(checkpoint / name).unlink()

    return damage


def remove_but_its_checksum(name: str) -> Damage:
    """Return the damage that deleting a log file by hand does: Hadoop's hidden checksum stays."""
    return lambda checkpoint: (checkpoint / name).unlink()


def empty(name: str) -> Damage:
    """Return the damage of a machine that crashed before the file's content reached the disk."""

    def damage(checkpoint: Path) -> None:
        (checkpoint / name).write_bytes(b"")
        _checksum_of(checkpoint / name).unlink()

    return damage


def tear(name: str, *, keep_checksum: bool = False) -> Damage:
    """Return the damage of a copy that ended half-way; with its checksum, Hadoop notices too."""

    def damage(checkpoint: Path) -> None:
        content = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(content[: len(content) // 2])
        if not keep_checksum:
            _checksum_of(checkpoint / name).unlink()

    return damage


def alter(name: str, old: bytes, new: bytes) -> Damage:
    """Return the damage of an edit by hand or a flipped bit: well-formed, other content, the former checksum."""

    def damage(checkpoint: Path) -> None:
        content = (checkpoint / name).read_bytes()
        assert content.count(old) == 1, f"{name} holds {old!r} {content.count(old)} times"
        (checkpoint / name).write_bytes(content.replace(old, new))

    return damage


def make_version(name: str, version: int) -> Damage:
    """Return the damage of a newer Spark: the same content under a later format version."""

    def damage(checkpoint: Path) -> None:
        _, newline, rest = (checkpoint / name).read_bytes().partition(b"\n")
        (checkpoint / name).write_bytes(f"v{version}".encode() + newline + rest)
        _checksum_of(checkpoint / name).unlink()

    return damage


def empty_checksum(name: str) -> Damage:
    """Return the damage of a crash after the file and before its checksum reached the disk."""

    def damage(checkpoint: Path) -> None:
        _checksum_of(checkpoint / name).write_bytes(b"")

    return damage


def add_foreign_number(log: str, name: str) -> Damage:
    """Return the damage of a file whose name Spark parses as a number and does not write itself."""

    def damage(checkpoint: Path) -> None:
        shutil.copy(checkpoint / log / "1", checkpoint / log / name)

    return damage


def add_what_spark_ignores(checkpoint: Path) -> None:
    """Leave what crashed writers, people and other programs leave in the logs' folders."""
    half = (checkpoint / "offsets" / "2").read_bytes()[:400]
    (checkpoint / "offsets" / ".3.7f1c0d7e-56a5-4d0e-9d35-0a6f6a3bb0b1.tmp").write_bytes(half)
    (checkpoint / "offsets" / "..3.7f1c0d7e-56a5-4d0e-9d35-0a6f6a3bb0b1.tmp.crc").write_bytes(b"crc\0")
    (checkpoint / "commits" / ".3.1d0b7ab2-9d7e-4b34-8f8e-8f2a3b6a7d11.tmp").write_bytes(b"")
    (checkpoint / "offsets" / "3.bak").write_bytes(half)
    (checkpoint / "commits" / "notes.txt").write_bytes(b"do not delete\n")
    (checkpoint / "offsets" / "9").mkdir()
    (checkpoint / "offsets" / "9" / "copy").write_bytes(half)


def keep_state_only(checkpoint: Path) -> None:
    """Take both logs away and leave the state of the query."""
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(checkpoint / log)


@dataclass(frozen=True)
class Broken:
    """One broken state: the recording it is made from and what was done to it, in this order."""

    state: str
    recording: str
    damages: tuple[Damage, ...]


BROKEN = (
    Broken("with-ignored-files", "checkpointed", (add_what_spark_ignores,)),
    Broken("offsets-removed-in-part", "planned", (remove("offsets/1"),)),
    Broken("checksum-file-empty", "checkpointed", (empty_checksum("offsets/2"), empty_checksum("commits/2"))),
    Broken("metadata-missing", "checkpointed", (remove("metadata"),)),
    Broken("metadata-empty", "checkpointed", (empty("metadata"),)),
    Broken("metadata-torn", "checkpointed", (tear("metadata"),)),
    Broken("offsets-missing", "checkpointed", (remove("offsets/0", "offsets/1", "offsets/2"),)),
    Broken("offsets-gap", "checkpointed", (remove("offsets/1"),)),
    Broken("previous-offsets-missing", "checkpointed", (remove("offsets/0", "offsets/1"),)),
    Broken("previous-offsets-missing-planned", "planned", (remove("offsets/0", "offsets/1", "offsets/2"),)),
    Broken("commits-missing", "checkpointed", (remove("commits/0", "commits/1", "commits/2"),)),
    Broken("commits-behind", "checkpointed", (remove("commits/1", "commits/2"),)),
    Broken("commits-ahead", "checkpointed", (remove("offsets/2"),)),
    Broken("offsets-empty", "planned", (empty("offsets/3"),)),
    Broken("offsets-torn", "planned", (tear("offsets/3"),)),
    Broken("offsets-torn-with-checksum", "planned", (tear("offsets/3", keep_checksum=True),)),
    Broken("offsets-altered", "planned", (alter("offsets/3", b'"0":8', b'"0":7'),)),
    Broken("offsets-version-later", "planned", (make_version("offsets/3", 3),)),
    Broken("offsets-foreign-number", "checkpointed", (add_foreign_number("offsets", "007"),)),
    Broken("commits-foreign-number", "checkpointed", (add_foreign_number("commits", "+7"),)),
    Broken("offsets-stray-checksum", "checkpointed", (remove_but_its_checksum("offsets/2"), remove("commits/2"))),
    Broken("commits-stray-checksum", "checkpointed", (remove_but_its_checksum("commits/2"),)),
    Broken("commits-empty", "checkpointed", (empty("commits/2"),)),
    Broken("commits-torn", "checkpointed", (tear("commits/2"),)),
    Broken("commits-version-later", "checkpointed", (make_version("commits/2", 4),)),
    Broken("kafka-start-missing", "first-batch-planned", (remove("sources/0/0"),)),
    Broken("kafka-start-torn", "first-batch-planned", (tear("sources/0/0"),)),
    Broken("state-without-offsets", "stateful", (keep_state_only,)),
)


def _topic(golden: GoldenTopic, session: SparkSession, _: Path) -> DataFrame:
    return golden.read(session, START.to_json())


def _counts(golden: GoldenTopic, session: SparkSession, folder: Path) -> DataFrame:
    return _topic(golden, session, folder).groupBy("partition").count()


def _twice(golden: GoldenTopic, session: SparkSession, folder: Path) -> DataFrame:
    return _topic(golden, session, folder).union(_topic(golden, session, folder))


def _lines(_: GoldenTopic, session: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    return session.readStream.text(str(folder)).selectExpr("1 as partition", "2 as offset")


@dataclass(frozen=True)
class Recording:
    """One query that is run batch by batch; with `fails` its last batch fails in the sink and so stays planned."""

    state: str
    batches: int
    fails: bool = False
    rows: Callable[[GoldenTopic, SparkSession, Path], DataFrame] = _topic
    settings: Mapping[str, str] = field(default_factory=dict)
    sink_name: str | None = None


RECORDINGS = (
    Recording("checkpointed", 3),
    Recording("planned", 4, fails=True),
    Recording("first-batch-planned", 1, fails=True),
    Recording("offsets-version-2", 4, fails=True, settings={"spark.sql.streaming.offsetLog.formatVersion": "2"}),
    Recording("commits-version-2", 4, fails=True, settings=ROCKSDB),
    Recording("commits-version-3", 2, settings={_SINK_EVOLUTION: "true"}, sink_name="orders"),
    Recording("stateful", 2, rows=_counts, settings={**ROCKSDB, "spark.sql.shuffle.partitions": "1"}),
    Recording("two-sources", 1, rows=_twice),
    Recording("file-source", 1, rows=_lines),
)
"""What Spark 4.2.0 writes by itself. One topic serves all: it is filled batch by batch, and every query follows it."""


def record(session: SparkSession, golden: GoldenTopic, scratch: Path, target: Path) -> None:
    """Run every recording's batches, each query ended and started again between two of them."""
    for number in range(max(recording.batches for recording in RECORDINGS)):
        golden.fill(ENDS[number])
        for recording in RECORDINGS:
            if number < recording.batches:
                fails = recording.fails and number == recording.batches - 1
                with _settings(session, recording.settings):
                    rows = recording.rows(golden, session, scratch / recording.state)
                    checkpoint = target / recording.state
                    fail_at = number if fails else None
                    found = run_to_end(rows, checkpoint, fail_at=fail_at, sink_name=recording.sink_name)
                assert (found.error is not None) == fails, f"{recording.state}: {found.error}"
                print(f"  {recording.state}: batch {number} {'planned' if fails else 'checkpointed'}", flush=True)


def break_copies(target: Path) -> None:
    """Make every broken state from a copy of its recording."""
    shutil.rmtree(target / "file-source" / "sources")  # it names folders of the machine it was recorded on
    for broken in BROKEN:
        shutil.copytree(target / broken.recording, target / broken.state)
        for damage in broken.damages:
            damage(target / broken.state)
        print(f"  {broken.state}: from {broken.recording}", flush=True)


def main() -> int:
    """Record and damage in a scratch folder, then put the result in place of what was there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--to", type=Path, default=GOLDEN, help="the folder to write (default: the one in tests/)")
    target: Path = parser.parse_args().to
    with tempfile.TemporaryDirectory() as folder:
        scratch, made = Path(folder), Path(folder) / "made"
        with Kafka(scratch / "kafka") as kafka, local_session("golden checkpoints", with_kafka=True) as session:
            record(session, GoldenTopic(kafka), scratch, made)
        break_copies(made)
        for old in target.glob("*/"):
            shutil.rmtree(old)
        shutil.copytree(made, target, dirs_exist_ok=True)
    print(f"{len(RECORDINGS) + len(BROKEN)} states in {target}")
    return 0


@contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            session.conf.unset(key)  # back to what the session was started with


def _checksum_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


if __name__ == "__main__":
    sys.exit(main())
