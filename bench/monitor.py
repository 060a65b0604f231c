"""`make bench-monitor`: what measuring streams takes. Prints a table and writes bench/out/monitor.json.

One process measures 1,000 streams, each with a ledger row and a topic of its own, on one real Kafka and one real Postgres,
and is scraped, with the series of partitions: once a 30 s interval each. Goals, for the whole operator: below 300 MB and a
tenth of a core. Two states of the streams: nothing waits; and every partition of every stream has moved since the last round
and has records that wait, so that the age of each must be fetched: the most that an interval can ask for.

Against it stands the same process with a Kafka client and a connection per stream, on fewer streams, where nothing waits (for
the age of records it would need a consumer a stream too). What it takes is scaled to the number of streams: core-seconds and
connections by their number, memory by what more streams add to it.

Rounds and scrapes are asked for one by one, and the process is left alone for a while: what an interval takes is the sum of
their core-seconds. So a busy machine makes the benchmark longer, and its figures only a little larger.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.figures import Figure, compared, table, write
from bench.monitor_setup import RECORDS, Interval, Setup
from testbed.kafka import Kafka
from testbed.postgres import Postgres

MEMORY_LIMIT = Figure("limit of memory", 300.0, "MB")
CPU_LIMIT = Figure("limit of CPU", 10.0, "% core")
# The index files of a segment are made at their full size, 10 MB, unless that is less.
_SMALL_INDEXES = {"log.index.size.max.bytes": "65536"}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitor", description=__doc__.split("\n")[0])
    parser.add_argument("--streams", type=int, default=1000, help="streams (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=3, help="partitions of each topic (default: %(default)s)")
    parser.add_argument("--own", type=int, default=100, help="streams with own clients (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds measured in each state (default: %(default)s)")
    parser.add_argument("--rest", type=float, default=15, help="seconds of rest in each state (default: %(default)s)")
    given = parser.parse_args()
    if not 5 <= given.own <= given.streams:
        parser.error(f"--own is {given.own}; give a number from 5 to --streams ({given.streams})")
    connections = {"max_connections": str(given.own + 50)}
    with tempfile.TemporaryDirectory(prefix="exactlyonce-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with (
            Kafka(folder / "kafka", settings=_SMALL_INDEXES) as kafka,
            Postgres(folder / "postgres", settings=connections) as postgres,
        ):
            setup = Setup(folder, kafka, postgres, given.streams, given.partitions, given.rounds, given.rest)
            print(f"{given.streams:,} topics of {given.partitions} partitions", flush=True)
            setup.prepare()
            print("One client per store", flush=True)
            quiet, figures = shared(setup)
            write(figures, "monitor")
            print("One client per stream", flush=True)
            figures += own(setup, given.own, quiet)
            kafka.stop(signal.SIGKILL)  # nothing of it is kept
    file = write(figures, "monitor")
    print(f"\n{table(figures)}\n\n{file}")
    return 0


def shared(setup: Setup) -> tuple[Interval, list[Figure]]:
    """Measure the monitor as it is, in both states; return what it takes where nothing waits, and the figures."""

    def moved(number: int) -> int:
        """Have each stream stand elsewhere than in the round before, with records behind that."""
        offset = number % RECORDS
        setup.land_until(offset)
        return RECORDS - offset

    with setup.process("shared") as measured:
        figures = [Figure("memory with no stream", measured.megabytes, "MB")]
        quiet, busy = measured.interval(setup.streams), measured.interval(setup.streams, moved)
    for interval, name in ((quiet, _quiet(setup)), (busy, f"{setup.streams:,} streams, all move and wait")):
        figures.append(compared(f"CPU at a 30 s interval, {name}", interval.share, "% core", CPU_LIMIT))
        figures.append(compared(f"memory, {name}", interval.megabytes, "MB", MEMORY_LIMIT))
        figures += interval.parts(name)
    return quiet, figures


def own(setup: Setup, streams: int, against: Interval) -> list[Figure]:
    """Measure one client and one connection per stream where nothing waits, and scale what they take."""
    setup.land_until(RECORDS)
    fewer = streams // 5
    with setup.process("own") as measured:
        with_fewer = measured.interval(fewer)
        found = measured.interval(streams)
    name = f"{streams:,} streams with own clients"
    scaled = f"{setup.streams:,} streams with own clients, scaled"
    times = setup.streams / streams
    each = (found.megabytes - with_fewer.megabytes) / (streams - fewer)
    memory = found.megabytes + each * (setup.streams - streams)
    one = _quiet(setup)
    return [
        Figure(f"CPU at a 30 s interval, {name}", found.share, "% core"),
        Figure(f"memory, {fewer:,} streams with own clients", with_fewer.megabytes, "MB"),
        Figure(f"memory, {name}", found.megabytes, "MB"),
        *found.parts(name),
        compared(f"CPU, {scaled}", found.share * times, "% core", Figure(f"CPU, {one}", against.share, "% core")),
        compared(f"memory, {scaled}", memory, "MB", Figure(f"memory, {one}", against.megabytes, "MB")),
        compared(f"connections, {scaled}", found.connections * times, "", Figure(f"of {one}", against.connections, "")),
    ]


def _quiet(setup: Setup) -> str:
    return f"{setup.streams:,} streams, nothing waits"


if __name__ == "__main__":
    sys.exit(main())
