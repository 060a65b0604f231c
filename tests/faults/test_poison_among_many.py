"""The whole way of records that fail by themselves: left out, kept, and landed once by a schedule, through every death.

With 100,000 ids and a death at every point it takes half an hour (make test-full). By default it has the same way with a few
hundred, one death in the bisection and one in the replay. What dies in between there: tests/integration/test_bisection.py and
test_replay.py, the operator in tests/unit/test_replay_pass.py and others of it, and all of it in the simulation.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from exactlyonce import crash_points
from exactlyonce.launch.local import MARKER
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import EVERY_MODE, in_full
from tests.operator_process import CRASHES, PACE
from tests.rig import Rig, eventually
from tests.struck_report import recorded
from tests.warm.launcher import warm_environment

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
MENDED = "select id, customer, amount, ts from source"
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


def killed_at(*places: Mapping[int, str]) -> tuple[str, ...]:
    """Return what kills drivers at points, each in its batch."""
    return tuple(f"{point}@{batch}=kill-driver" for points in places for batch, point in points.items())


@dataclass(frozen=True)
class Form:
    """How many records there are and how many of each batch fail, who dies where, and how fast the operator's clock goes.

    `failures` are those after which a batch is divided, and `kills_a_second` how probable a kill of the operator is.
    """

    ids: int
    partitions: int
    batch: int
    of_batch: Mapping[int, int]
    crashes: tuple[str, ...]
    operator_points: tuple[str, ...] = ()
    kills_a_second: float = 0.0
    failures: int = 2
    backoff: tuple[int, int] = (1, 2)
    pace: int = 1

    @property
    def poison(self) -> int:
        """How many records fail."""
        return sum(self.of_batch.values())


LARGE = Form(
    ids=100_000,
    partitions=4,
    batch=7_200,
    of_batch={1: 13, 2: 13, 3: 3, 4: 3, 5: 3, 6: 15},  # fewer where the next driver has to look for them again
    crashes=(
        *(f"{point}=kill-driver" for point in (*BEFORE_ANY_BATCH, "replay.claimed")),
        *killed_at(BEFORE_THE_ORDER, WITH_THE_ORDER, WITHOUT_AN_ORDER, OF_A_REPLAY),
        FREEZES,
    ),
    operator_points=OF_THE_OPERATOR,
    kills_a_second=0.01,
)
SMALL = Form(
    ids=400,
    partitions=2,
    batch=200,
    of_batch={1: 3},
    crashes=killed_at({1: "bisect.tried"}, {1: "replay.rows-written"}),
    backoff=(0, 1),
    pace=20,  # its schedule names each minute: one comes every three seconds
)


@dataclass
class Operator:
    """A process that is started again whenever it has died, and killed at moments that are drawn."""

    rig: Rig
    form: Form
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
        asked = " ".join(f"{point}={self.fired(point)}" for point in self.form.operator_points)
        orders = {crash_points.VARIABLE: asked, CRASHES: self.crashes, PACE: str(self.form.pace)}
        environment = {**warm_environment(os.environ), **orders}
        command = [sys.executable, "-m", "tests.operator_process", str(self.home)]
        with (self.home / "operator-log").open("ab") as log:
            while not self._over.is_set():
                child = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
                while child.poll() is None and not self._over.wait(1.0):
                    if self.draw.random() < self.form.kills_a_second:
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


def poison_among(form: Form, draw: random.Random) -> list[int]:
    """Draw the records that fail, as many of each partition; the ids of a batch follow each other, since those are even."""
    found: list[int] = []
    for batch, count in form.of_batch.items():
        first = (batch - 1) * form.batch
        for place in range(form.partitions):
            share = count // form.partitions + (place < count % form.partitions)
            found += draw.sample(range(first + place, first + form.batch, form.partitions), share)
    return sorted(found)


def files_of(crashes: tuple[str, ...], folder: Path) -> dict[str, Path]:
    """Return the file that each crash leaves."""
    return {word: folder / f"fired-{word.replace('=', '-')}" for word in crashes}


@pytest.mark.seconds(150)
@pytest.mark.timeout(5400)
def test_all_but_the_records_that_fail_land_and_a_schedule_lands_those_once_through_every_death(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form = in_full(LARGE, otherwise=SMALL)
    seed = int(os.environ.get("POISON_SEED") or random.randrange(1 << 32))
    with capsys.disabled():
        print(f"\nAgain: POISON_SEED={seed} EVERY_MODE={EVERY_MODE:d} python -m pytest {Path(__file__).name}")
    draw = random.Random(seed)
    poison = poison_among(form, draw)
    rig = Rig(kafka, postgres_18, tmp_path, name, partitions=form.partitions)
    produce(rig, form, poison)
    initial, longest = form.backoff
    rig.overrides |= {
        "spec.source.kafka.maxOffsetsPerTrigger": form.batch,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": {
            "backoff": {"initial": f"{initial}s", "max": f"{longest}s"},
            "maxFailuresPerBatch": form.failures,
            "onPoisonBatch": "Bisect",
            "maxQuarantined": form.poison,
        },
    }
    fired = files_of(form.crashes, rig.folder)
    operator = Operator(rig, form, draw, " ".join(f"{word},{file}" for word, file in fired.items()))
    operator.apply()
    kills = f"{len(form.crashes)} drivers and replays, {len(form.operator_points)} operators and more at random"
    with recorded(f"{form.poison} records that fail", form.ids, kills, seed):
        run(operator, poison, fired)
        rig.assert_exactly_once()
    assert [word for word, file in fired.items() if not file.exists()] == [], "a driver has died at each of these"
    assert [point for point in form.operator_points if not operator.fired(point).exists()] == []
    assert operator.deaths >= len(form.operator_points)
    told = operator.events()
    assert "HALTED" not in told, told
    assert "BatchBisected" in told, told
    assert "BatchQuarantined" not in told, "no batch was given up as a whole"
    waits = [float(seconds) for seconds in re.findall(r"WAITS ([0-9.]+) s", told)]
    assert max(waits, default=0.0) <= longest, "the stream never stops for longer than its backoff"
    assert statuses(rig) == {"Replayed"}
    with capsys.disabled():
        print(f"{form.ids} ids. {operator.deaths} deaths of the operator, {len(fired)} of drivers; seed {seed}")


def run(operator: Operator, poison: list[int], fired: dict[str, Path]) -> None:
    """Run the stream under its operator until all has landed and every death has come."""
    thread = threading.Thread(target=operator.supervise)
    thread.start()
    try:
        land_all(operator.rig, operator, poison)
        operator.in_time(lambda: all(it.exists() for it in unmet(operator, fired)), "every death has come", 300)
        # What lands a second time lands before its range is Replayed: only then are the ids counted.
        operator.in_time(lambda: statuses(operator.rig) == {"Replayed"}, "each failure is replayed", 300)
    finally:
        operator.stop()
        thread.join(120)
        end_all(operator.rig)


def land_all(rig: Rig, operator: Operator, poison: list[int]) -> None:
    """See all others land, mend the transform, and see a schedule land what had failed."""
    form = operator.form
    others = form.ids - form.poison
    operator.in_time(lambda: rig.landed() >= others, "all but the records that fail have landed", 1200)
    assert set(rig.produced) - set(rig.counts()) == set(poison), "one bad record costs one record"
    kept = rig.sql(
        "select count(*), sum(until_offset - from_offset), count(distinct partition) from exactlyonce.failures "
        "where status = 'Quarantined'"
    )
    assert [tuple(map(int, row)) for row in kept] == [(form.poison, form.poison, form.partitions)]
    operator.apply(transform={"sql": MENDED}, replay={"schedule": "* * * * *", "timeZone": "Europe/Berlin"})
    operator.in_time(lambda: rig.landed() >= form.ids, "a scheduled replay has landed them", 600)


def statuses(rig: Rig) -> set[str]:
    """Return the statuses that failed ranges have, apart from those of attempts."""
    rows = rig.sql("select distinct status from exactlyonce.failures where status not in ('Closed', 'Open')")
    return {str(status) for (status,) in rows}


def unmet(operator: Operator, fired: dict[str, Path]) -> list[Path]:
    """Return the files that tell of each death."""
    return [*fired.values(), *(operator.fired(point) for point in operator.form.operator_points)]


def produce(rig: Rig, form: Form, poison: list[int]) -> None:
    """Produce all ids in their order."""
    for number in poison:
        if number > len(rig.produced):
            rig.produce(number - len(rig.produced))
        rig.produce(1, customer="nobody")
    rig.produce(form.ids - len(rig.produced))


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
