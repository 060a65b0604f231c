"""`make soak KILLS=1000`: a stream a commit mode, both at once, struck as often as asked; ids are counted all the while.

Drivers are killed at named points and at random, the loop is killed, the database crashes and is restarted, loses a backend,
and fails over to a real streaming standby, with and without its latest transactions. Status 1 if a record is lost or doubled.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from testbed.kafka import Kafka
from testbed.postgres_replica import PostgresPair
from tests.rig import Rig, eventually
from tests.soak_stream import Planned, SoakStream, Strike

COMMITS = ("Batch", "Partition")


@dataclass
class Soak:
    """Two streams over one database and its standby."""

    pair: PostgresPair
    streams: list[SoakStream]
    kills: int
    seed: int
    struck: Counter[Strike] = field(default_factory=Counter)
    lost_batches: int = 0
    started: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Strike until the number is reached, then let both streams take the rest and compare all ids."""
        plans = {stream.commit: stream.plan() for stream in self.streams}
        for stream in self.streams:
            stream.start()
        try:
            # A failover that takes away a stream's first transactions halts it, as it has to.
            eventually(self._all_have_landed, f"both streams have begun; seed {self.seed}", 600)
            while self.struck.total() < self.kills:
                stream = self._next(plans)
                self._strike(stream, plans[stream.commit])
                plans[stream.commit] = stream.plan()
                self._show(stream)
            for stream in self.streams:
                stream.settle()
            for stream in self.streams:
                stream.stop()
        finally:
            for stream in self.streams:
                stream.give_up()
        for stream in self.streams:
            stream.rig.assert_exactly_once()

    def _all_have_landed(self) -> bool:
        return all(stream.landed_batch() >= 1 for stream in self.streams)

    def _next(self, plans: dict[str, Planned]) -> SoakStream:
        """Wait for the first stream that has come as far as its next strike."""
        ready: list[SoakStream] = []

        def one_is_ready() -> bool:
            for stream in self.streams:
                stream.keep_ahead()
            ready[:] = [stream for stream in self.streams if stream.is_ready(plans[stream.commit].batches)]
            return bool(ready)

        eventually(one_is_ready, f"a stream continues; seed {self.seed}", 300)
        return min(ready, key=lambda stream: stream.points.total())

    def _strike(self, stream: SoakStream, planned: Planned) -> None:
        counted = True
        match planned.strike:
            case Strike.DRIVER:
                stream.pause(planned.seconds)
                stream.kill_driver()
            case Strike.POINT:
                counted = stream.kill_at(planned.point)
            case Strike.LOOP:
                stream.pause(planned.seconds)
                stream.kill_loop()
            case Strike.CRASH:
                stream.pause(planned.seconds)
                self.pair.crash()
            case Strike.BACKEND:
                stream.pause(planned.seconds)
                counted = self._kill_backend(stream)
            case Strike.FAILOVER:
                stream.pause(planned.seconds)
                self.pair.fail_over()
                self.pair.rebuild_standby()
            case Strike.LOSS:
                self._fail_over_with_loss(stream, planned)
            case _:
                assert_never(planned.strike)
        self.struck[planned.strike] += counted
        stream.struck_at = stream.landed_batch()

    def _kill_backend(self, stream: SoakStream) -> bool:
        """Kill one of the stream's sessions, the busiest first."""
        found = self.pair.execute(
            "select pid from pg_stat_activity where datname = %s and pid <> pg_backend_pid() "
            "order by state = 'idle', query_start desc limit 1",
            parameters=[stream.rig.name],
        )
        if found:
            self.pair.primary.kill_backend(int(str(found[0][0])))
        return bool(found)

    def _fail_over_with_loss(self, stream: SoakStream, planned: Planned) -> None:
        """Let batches land that the standby does not get, then promote it."""
        self.pair.cut_replication()
        goal = stream.landed_batch() + planned.lost_batches
        eventually(lambda: stream.landed_batch() >= goal, f"{planned.lost_batches} batches land; seed {self.seed}", 300)
        stream.pause(planned.seconds)
        before = [each.landed_batch() for each in self.streams]
        self.pair.fail_over()
        after = [each.landed_batch() for each in self.streams]
        self.lost_batches += sum(max(0, was - now) for was, now in zip(before, after, strict=True))
        self.pair.rebuild_standby()

    def _show(self, stream: SoakStream) -> None:
        end = "\r" if sys.stderr.isatty() else "\n"
        minutes = (time.monotonic() - self.started) / 60
        line = f"{self.struck.total()}/{self.kills} strikes in {minutes:.1f} minutes; {stream.commit} at {stream.struck_at}"
        print(f"  {line}", end=end, file=sys.stderr, flush=True)

    def report(self) -> str:
        """Return what was done and found, as the page of the report."""
        minutes = (time.monotonic() - self.started) / 60
        lines = [f"{self.struck.total()} kills by kind in {minutes:.0f} minutes (seed {self.seed}):", ""]
        lines += ["| What was struck | Times |", "|---|---|"]
        lines += [f"| {strike.value} | {self.struck[strike]} |" for strike in Strike]
        lines += ["", f"Batches that failovers took away, and that landed again: {self.lost_batches}.", ""]
        for stream in self.streams:
            ids, verdicts = len(stream.rig.produced), stream.verdicts().most_common()
            told = ", ".join(f"{kind} {count}" for kind, count in verdicts)
            lines.append(
                f"- commit: {stream.commit}: {ids} ids, 0 lost, 0 doubled; {stream.attempts()} attempts. {told}."
            )
            points = ", ".join(f"{point or 'before a batch'} {count}" for point, count in stream.points.most_common())
            lines.append(f"  Drivers were killed at, or at random after: {points}.")
        return "\n".join(lines)


def main() -> int:
    """Run the soak that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="over both modes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="draws the same strikes again")
    parser.add_argument("--report", type=Path, help="a page to write the report to, as well")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-soak-")))
        pair = stack.enter_context(PostgresPair(folder / "postgres"))
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        soak = Soak(
            pair,
            [_stream(kafka, pair, folder, commit, options.seed) for commit in COMMITS],
            options.kills,
            options.seed,
        )
        try:
            soak.run()
        except AssertionError as problem:
            print(f"\n{problem}\nAgain: python -m tests.soak --kills {options.kills} --seed {options.seed}")
            return 1
        print(f"\n{soak.report()}", flush=True)
        if options.report is not None:
            options.report.write_text(
                f"# The soak\n\n`make soak KILLS={options.kills}` keeps this page.\n\n{soak.report()}\n"
            )
    return 0


def _stream(kafka: Kafka, pair: PostgresPair, folder: Path, commit: str, seed: int) -> SoakStream:
    home = folder / commit
    home.mkdir()
    return SoakStream(Rig(kafka, pair, home, f"soak-{commit.lower()}", cold=True), commit, seed)


if __name__ == "__main__":
    sys.exit(main())
