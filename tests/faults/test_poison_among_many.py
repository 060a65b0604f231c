"""The whole way of records that fail by themselves: left out, kept, and landed once by a schedule, through every death.

It takes half an hour, so `make test` has its parts: a bisection that is killed (tests/integration/test_bisection.py),
replays that are (tests/integration/test_replay.py), an operator that is (tests/unit/test_replay_pass.py and others of it),
a stream with a replay on a cluster (tests/cluster/test_stream_replays.py), and all of it by the simulation.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from exactlyonce import crash_points
from exactlyonce.launch.local import MARKER
from tests.combinations import only_in_full
from tests.operator_process import CRASHES
from tests.rig import Rig, eventually

IDS, POISON, BATCH = 100_000, 50, 7_200
OF_BATCH = {1: 13, 2: 13, 3: 3, 4: 3, 5: 3, 6: 15}
"""How many records fail in which batch: fewer where the next driver has to look for them again."""
FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
MENDED = "select id, customer, amount, ts from source"
BACKOFF_SECONDS = 2.0

BEFORE_ANY_BATCH = ("driver.claimed", "driver.session-started")
BEFORE_THE_ORDER = {1: "batch.planned", 2: "batch.begun", 3: "task.started"}
WITH_THE_ORDER = {
    1: "bisect.begun", 2: "bisect.tried", 3: "bisect.found", 4: "land.left-out-kept", 5: "land.before-commit",
    6: "batch.landed",
}  # fmt: skip
"""Each in a batch of its own: a batch that fails twice more with the order is quarantined whole."""
WITHOUT_AN_ORDER = {
    7: "task.copying", 8: "task.committed", 9: "batch.rows-written", 10: "batch.source-checked", 11: "land.fenced",
    12: "land.rows-moved", 13: "land.positions-advanced",
}  # fmt: skip
OF_A_REPLAY = {
    1: "replay.begun", 2: "replay.read", 3: "replay.source-checked", 4: "replay.rows-written", 5: "replay.landed",
}  # fmt: skip
FREEZES = "replay.rows-written@6=freeze"
"""A process that hangs inside its transaction, under the stream's lock."""
OF_THE_OPERATOR = (
    "pass.attempt-recorded", "pass.epoch-raised", "pass.observed", "pass.verdict-recorded", "pass.acted",
    "pass.driver-recorded", "ending.seen", "ending.recorded", *crash_points.REPLAY_POINTS, *crash_points.SCHEDULE_POINTS,
    *crash_points.REPLAY_HANG_POINTS,
)  # fmt: skip


@dataclass
class Operator:
    """A process that is started again whenever it has died, and killed at moments that are drawn."""

    rig: Rig
    draw: random.Random
    crashes: str
    deaths: int = 0
    problems: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def home(self) -> Path:
        """Its folder."""
        return self.rig.folder

    def fired(self, point: str) -> Path:
        """The file that tells that the operator has died at a point."""
        return self.home / f"operator-fired-{point}"

    def apply(self, **spec: object) -> None:
        """Write the resource."""
        document = self.rig.document({f"spec.{path}": value for path, value in spec.items()})
        document["metadata"] |= {"uid": "u-1", "generation": 1, "resourceVersion": "1"}
        half = self.home / "half-stream"
        half.write_text(json.dumps(document))
        half.replace(self.home / "stream.json")

    def supervise(self) -> None:
        """Keep one running until `stop`; in each second it may be killed where it stands."""
        asked = " ".join(f"{point}={self.fired(point)}" for point in OF_THE_OPERATOR)
        environment = {**os.environ, crash_points.VARIABLE: asked, CRASHES: self.crashes}
        command = [sys.executable, "-m", "tests.operator_process", str(self.home)]
        with (self.home / "operator-log").open("ab") as log:
            while not self._over.is_set():
                child = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
                while child.poll() is None and not self._over.wait(1.0):
                    if self.draw.random() < 0.01:
                        child.kill()
                if child.wait(60) == -signal.SIGKILL:
                    self.deaths += 1
                elif not self._over.is_set():
                    self.problems.append(f"an operator ended with {child.returncode}")
                    return

    def stop(self) -> None:
        """End the last one."""
        (self.home / "stop").touch()
        self._over.set()

    def events(self) -> str:
        """What all of them have told."""
        file = self.home / "events"
        return file.read_text() if file.exists() else ""

    def in_time(self, condition: object, what: str, seconds: float) -> None:
        """Wait, and tell what was told where it does not come."""
        try:
            eventually(lambda: bool(self.problems) or condition(), what, seconds)  # type: ignore[operator] # a function
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.events()[-4000:]}") from problem
        assert not self.problems, f"{self.problems}\n{(self.home / 'operator-log').read_text()[-4000:]}"


def poison_among(draw: random.Random) -> list[int]:
    """Draw the records that fail; the ids of a batch follow each other, since the partitions are even."""
    chosen = [draw.sample(range((batch - 1) * BATCH, batch * BATCH), count) for batch, count in OF_BATCH.items()]
    return sorted(number for numbers in chosen for number in numbers)


def crashes_in(folder: Path) -> tuple[str, dict[str, Path]]:
    """Return what the drivers of the stream and its replays are asked for, and the file that each crash leaves."""
    words = [f"{point}=kill-driver" for point in (*BEFORE_ANY_BATCH, "replay.claimed")]
    for places in (BEFORE_THE_ORDER, WITH_THE_ORDER, WITHOUT_AN_ORDER, OF_A_REPLAY):
        words += [f"{point}@{batch}=kill-driver" for batch, point in places.items()]
    fired = {word: folder / f"fired-{word.replace('=', '-')}" for word in (*words, FREEZES)}
    return " ".join(f"{word},{file}" for word, file in fired.items()), fired


@only_in_full
@pytest.mark.timeout(5400)
def test_all_but_the_records_that_fail_land_and_a_schedule_lands_those_once_through_every_death(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("POISON_SEED") or random.randrange(1 << 32))
    with capsys.disabled():
        print(f"\nAgain: POISON_SEED={seed} EVERY_MODE=1 python -m pytest tests/faults/test_poison_among_many.py")
    draw = random.Random(seed)
    poison = poison_among(draw)
    produce(rig, poison)
    rig.overrides |= {
        "spec.source.kafka.maxOffsetsPerTrigger": BATCH,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": {
            "backoff": {"initial": "1s", "max": f"{BACKOFF_SECONDS:.0f}s"},
            "maxFailuresPerBatch": 2,
            "onPoisonBatch": "Bisect",
            "maxQuarantined": POISON,
        },
    }
    crashes, fired = crashes_in(rig.folder)
    operator = Operator(rig, draw, crashes)
    operator.apply()
    thread = threading.Thread(target=operator.supervise)
    thread.start()
    try:
        operator.in_time(lambda: rig.landed() >= IDS - POISON, "all but the records that fail have landed", 1200)
        assert set(rig.produced) - set(rig.counts()) == set(poison), "one bad record costs one record"
        kept = rig.sql(
            "select count(*), sum(until_offset - from_offset) from exactlyonce.failures where status = 'Quarantined'"
        )
        assert [tuple(map(int, row)) for row in kept] == [(POISON, POISON)]
        operator.apply(transform={"sql": MENDED}, replay={"schedule": "* * * * *", "timeZone": "Europe/Berlin"})
        operator.in_time(lambda: rig.landed() >= IDS, "a scheduled replay has landed them", 600)
        operator.in_time(lambda: all(it.exists() for it in unmet(operator, fired)), "every death has come", 300)
    finally:
        operator.stop()
        thread.join(120)
        end_all(rig)
    rig.assert_exactly_once()
    assert [word for word, file in fired.items() if not file.exists()] == [], "a driver has died at each of these"
    assert [point for point in OF_THE_OPERATOR if not operator.fired(point).exists()] == []
    assert operator.deaths >= len(OF_THE_OPERATOR)
    told = operator.events()
    assert "HALTED" not in told, told
    assert "BatchQuarantined" not in told, "no batch was given up as a whole"
    waits = [float(seconds) for seconds in re.findall(r"WAITS ([0-9.]+) s", told)]
    assert max(waits) <= BACKOFF_SECONDS, "the stream never stops for longer than its backoff"
    assert rig.sql("select distinct status from exactlyonce.failures where status not in ('Closed', 'Open')") == [
        ("Replayed",)
    ]
    with capsys.disabled():
        print(f"{operator.deaths} deaths of the operator, {len(fired)} of drivers; seed {seed}")


def unmet(operator: Operator, fired: dict[str, Path]) -> list[Path]:
    """Return the files that tell of each death."""
    return [*fired.values(), *(operator.fired(point) for point in OF_THE_OPERATOR)]


def produce(rig: Rig, poison: list[int]) -> None:
    """Produce all ids in their order."""
    for number in poison:
        if number > len(rig.produced):
            rig.produce(number - len(rig.produced))
        rig.produce(1, customer="nobody")
    rig.produce(IDS - len(rig.produced))


def end_all(rig: Rig) -> None:
    """End what the operator has started and left: it knows no other way to end than to be killed."""
    rig.kill_all(rig.open())
    for process in (rig.folder / "pods").glob("*/process"):
        pid, created = process.read_text().split()
        if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).create_time() == float(created):
            os.killpg(int(pid), signal.SIGKILL)
    eventually(lambda: not any(str(rig.folder) in marker_of(it) for it in psutil.process_iter()), "nothing is left")


def marker_of(process: psutil.Process) -> str:
    """Return what marks the process of a driver; nothing of one that has ended."""
    try:
        return str(process.environ().get(MARKER, ""))
    except psutil.Error:
        return ""
