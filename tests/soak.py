"""`make soak KILLS=1000`: a stream a commit mode, both at once, struck as often as asked; ids are counted all the while.

Drivers are killed at named points and at random, the loop is killed, the database crashes and is restarted, loses a backend,
and fails over to a real streaming standby, with and without its latest transactions. Status 1 if a record is lost or doubled.

The kills are done in sittings of 50, each with servers of its own, and a sitting whose ids were compared is appended to a file
beside the report (`soak.sittings.jsonl`, a kilobyte a line), which is committed with it: the same command continues from there
after a Ctrl-C or a reboot, and on another machine. Sittings of another commit do not count; with --any-commit they do, and the
report says which commit has done how many.
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

from scripts.code_version import commit_of
from testbed.kafka import Kafka
from testbed.postgres_replica import PostgresPair
from tests.rig import Rig, eventually
from tests.soak_sittings import OfMode, Sitting, Sittings, SittingsFile
from tests.soak_stream import Planned, SoakStream, Strike

COMMITS = ("Batch", "Partition")
CODE = ("operator", "spark_apps", "testbed", "tests")
KILLS_OF_A_SITTING = 50


@dataclass
class Soak:
    """One sitting: two streams over one database and its standby."""

    pair: PostgresPair
    streams: list[SoakStream]
    kills: int
    seed: int
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
            while self.struck < self.kills:
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

    @property
    def struck(self) -> int:
        """How many kills count so far."""
        return sum(stream.struck.total() for stream in self.streams)

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
        stream.struck[planned.strike] += counted
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
        line = f"{self.struck}/{self.kills} strikes in {minutes:.1f} minutes; {stream.commit} at {stream.struck_at}"
        print(f"  {line}", end=end, file=sys.stderr, flush=True)

    def done(self, commit: str, wrong: str = "") -> Sitting:
        """Return what was done; `wrong` is what it failed with, and then nothing of it counts."""
        modes = {} if wrong else {stream.commit: _of(stream) for stream in self.streams}
        return Sitting(commit, self.seed, round(time.monotonic() - self.started, 1), modes, self.lost_batches, wrong)


def _of(stream: SoakStream) -> OfMode:
    kinds = Counter({strike.value: count for strike, count in stream.struck.items()})
    return OfMode(kinds, len(stream.rig.produced), stream.attempts(), stream.verdicts(), stream.points)


def main(arguments: list[str] | None = None) -> int:
    """Run the sittings that the command line asks for; the exit status is 0 when all kills were done and none went wrong."""
    options = _options(arguments)
    sittings = Sittings(commit_of(*CODE), options.kills)
    file = SittingsFile(options.progress or (options.report and options.report.with_suffix(".sittings.jsonl")))
    file.read_into(sittings, options.any_commit)
    if sittings.kills:
        print(f"{sittings.kills} kills were done before; continuing.", flush=True)
    try:
        while sittings.left:
            kills, seed = min(sittings.left, options.sitting), sittings.next_seed(options.seed)
            sitting = _sit(kills, seed, sittings.commit)
            file.append(sitting)
            sittings.found.append(sitting)
            _keep(sittings, options.report)
            if sitting.wrong:
                break  # somebody looks at it first
    except KeyboardInterrupt:
        print("\nStopped: the sitting that was under way does not count. The same command continues.", flush=True)
    _keep(sittings, options.report)
    print(f"\n{sittings.report()}", flush=True)
    return 1 if sittings.wrong or sittings.left else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="over both modes (default: %(default)s)")
    parser.add_argument(
        "--sitting", type=int, default=KILLS_OF_A_SITTING, help="kills per sitting (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 32), help="of the first sitting: the same strikes"
    )
    parser.add_argument("--report", type=Path, help="a page to write the report to, as well")
    parser.add_argument("--progress", type=Path, help="where sittings are kept (default: beside the report)")
    parser.add_argument("--any-commit", action="store_true", help="count what another commit has done")
    return parser.parse_args(arguments)


def _keep(sittings: Sittings, report: Path | None) -> None:
    if report is not None:
        report.write_text(f"# The soak\n\n`make soak KILLS={sittings.asked}` keeps this page.\n\n{sittings.report()}\n")


def _sit(kills: int, seed: int, commit: str) -> Sitting:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-soak-")))
        pair = stack.enter_context(PostgresPair(folder / "postgres"))
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        soak = Soak(pair, [_stream(kafka, pair, folder, mode, seed) for mode in COMMITS], kills, seed)
        try:
            soak.run()
        except AssertionError as problem:
            print(f"\n{problem}\nAgain: python -m tests.soak --kills {kills} --sitting {kills} --seed {seed}")
            return soak.done(commit, wrong=f"{problem}".splitlines()[0][:300] or type(problem).__name__)
        return soak.done(commit)


def _stream(kafka: Kafka, pair: PostgresPair, folder: Path, commit: str, seed: int) -> SoakStream:
    home = folder / commit
    home.mkdir()
    return SoakStream(Rig(kafka, pair, home, f"soak-{commit.lower()}", cold=True), commit, seed)


if __name__ == "__main__":
    sys.exit(main())
