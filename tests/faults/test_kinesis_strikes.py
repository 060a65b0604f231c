"""100,000 ids through a data stream whose shards are split and merged, while all that takes part is killed (make test-full)."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.connectors.kinesis.positions import UserRecord
from testbed.kinesis import Kinesis
from testbed.postgres import Postgres
from testbed.spark import local_session
from tests.combinations import only_in_full
from tests.kinesis_rig import KinesisRig
from tests.rig import eventually
from tests.struck_report import recorded
from tests.struck_stream import StruckStream

IDS = int(os.environ.get("STRUCK_IDS", "100000"))
BATCH_IDS = 800
IDS_A_RECORD = 3.25
POSITION = ("_exactlyonce_partition", "_exactlyonce_offset")
"""The columns that files have with includePositions."""

PLANNER = "source.end-planned"
POINTS = (
    "batch.planned", "batch.begun", "batch.rows-written", "batch.source-checked", "land.fenced", "land.positions-advanced",
    "land.before-commit", "batch.landed",
)  # fmt: skip
"""Those that a batch passes into either sink."""


class Strike(Enum):
    """What is done next."""

    DRIVER = "driver killed at a moment drawn at random"
    POINT = "driver killed at a named point"
    PLANNER = "planner killed when a batch's end is known and in no log yet"
    LOOP = "loop killed, and its driver with it"
    SPLIT = "shard split"
    MERGE = "two shards merged"


DRIVERS = int(os.environ.get("STRUCK_DRIVERS", "20"))
OTHERS = -(-DRIVERS // 8)
TIMES = {
    Strike.DRIVER: DRIVERS // 2,
    Strike.POINT: DRIVERS - DRIVERS // 2,
    **dict.fromkeys((Strike.PLANNER, Strike.LOOP, Strike.SPLIT, Strike.MERGE), OTHERS),
}

Rows = Counter[tuple[Any, ...]]
"""How often each row is there, by the columns that tell it."""


@dataclass(frozen=True)
class Sink:
    """Where rows go, the points that only its batches pass, and what is expected there and found by each reader."""

    overrides: Callable[[Path], dict[str, Any]]
    points: tuple[str, ...]
    expected: Callable[[KinesisRig], Rows]
    found: tuple[Callable[[KinesisRig], Rows], ...]


def _ids(rig: KinesisRig) -> Rows:
    return Counter((number,) for number in rig.produced)


def _in_the_table(rig: KinesisRig) -> Rows:
    return Counter({(number,): times for number, times in rig.counts().items()})


def _ids_and_positions(rig: KinesisRig) -> Rows:
    """Each id with where Kinesis said that it put it."""
    return Counter(
        (number, shard, UserRecord(sequence_number, place).position)
        for number, (shard, sequence_number, place) in rig.places.items()
    )


def _listed(rig: KinesisRig) -> Rows:
    """What pyarrow reads of the files that the ledger names."""
    command = [
        "files",
        str(rig.folder / "stream.yaml"),
        "--state",
        str(rig.folder / "state"),
        "--secrets",
        str(rig.secrets),
    ]
    listed = CliRunner().invoke(main, command)
    assert listed.exit_code == 0, listed.output
    table = pyarrow.dataset.dataset(listed.stdout.splitlines()).to_table()
    columns = (table[name].to_pylist() for name in ("id", *POSITION))
    return Counter((number, shard, int(position)) for number, shard, position in zip(*columns, strict=True))


def _shown(rig: KinesisRig) -> Rows:
    """What Spark reads of the folder."""
    with local_session("counts") as session:
        rows = session.read.parquet(str(rig.folder / "out")).select("id", *POSITION).collect()
    return Counter((number, shard, int(position)) for number, shard, position in rows)


SINKS = {
    "Postgres": Sink(lambda folder: {}, ("land.rows-moved", "task.committed"), _ids, (_in_the_table,)),
    "files": Sink(
        lambda folder: {
            "spec.sink": {"files": {"path": str(folder / "out"), "includePositions": True}},
            "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
            "spec.transform": {"sql": "select id, _stream, _shard, _position from source"},
        },
        ("publish.prepared", "publish.created", "batch.published"),
        _ids_and_positions,
        (_listed, _shown),
    ),
}


class Struck:
    """A stream, and what is done to it in an order drawn from a seed."""

    def __init__(self, rig: KinesisRig, sink: Sink, seed: int) -> None:
        self._rig = rig
        self._seed = seed
        self._dice = random.Random(seed)
        self._points = (*POINTS, *sink.points)
        named = {**dict.fromkeys(self._points, "kill-driver"), PLANNER: "kill"}
        self.stream = StruckStream(rig, "from Kinesis", seed, named)
        self.struck: Counter[Strike] = Counter()

    def run(self) -> None:
        """Do it all while ids are put, then let the stream take the rest."""
        strikes = [strike for strike, times in TIMES.items() for _ in range(times)]
        self._dice.shuffle(strikes)
        self._put(IDS // len(strikes))
        self.stream.start()
        try:
            for number, strike in enumerate(strikes, 1):
                batches = self._dice.randint(0, 2)
                ready = partial(self._is_ready, batches)
                eventually(ready, f"it continues before {strike}; seed {self._seed}", 300)
                self._strike(strike)
                self.struck[strike] += 1
                self.stream.struck_at = self.stream.landed_batch()
                self._put(IDS * (number + 1) // len(strikes) - len(self._rig.produced))
            self._put(IDS - len(self._rig.produced))
            eventually(self._has_all, f"every record has landed; seed {self._seed}", 300)
            self.stream.stop()
        finally:
            self.stream.give_up()

    def _strike(self, strike: Strike) -> None:
        match strike:
            case Strike.DRIVER:
                self.stream.pause(self._dice.uniform(0, 1))
                self.stream.kill_driver()
            case Strike.POINT:
                self._kill_at(self._dice.choice(self._points))
            case Strike.PLANNER:
                self._kill_at(PLANNER)
            case Strike.LOOP:
                self.stream.pause(self._dice.uniform(0, 1))
                self.stream.kill_loop()
            case Strike.SPLIT:
                self._rig.kinesis.split(self._rig.name, self._dice.choice(self._open_shards()))
            case Strike.MERGE:
                first = self._dice.randrange(len(self._open_shards()) - 1)
                self._rig.kinesis.merge(self._rig.name, *self._open_shards()[first : first + 2])
            case _:
                assert_never(strike)

    def _kill_at(self, point: str) -> None:
        assert self.stream.kill_at(point), (
            f"the stream did not come to {point}; seed {self._seed}\n{self.stream.told()}"
        )

    def _is_ready(self, batches: int) -> bool:
        self.stream.keep_command_alive()
        if self._landed() > len(self._rig.produced) - 2 * BATCH_IDS:
            self._put(2 * BATCH_IDS)
        return self.stream.is_ready(batches)

    def _has_all(self) -> bool:
        self.stream.keep_command_alive()
        return self._landed() >= len(self._rig.produced)

    def _landed(self) -> int:
        """Return the rows that the ledger counts: for the pace alone, never for the outcome."""
        found = self.stream.query(
            "select coalesce(sum(rows_written), 0) from exactlyonce.batches where status = 'Landed'"
        )
        return 0 if found is None else int(found[0][0])

    def _open_shards(self) -> list[str]:
        return [shard["ShardId"] for shard in self._rig.kinesis.open_shards(self._rig.name)]

    def _put(self, ids: int) -> None:
        if ids > 0:
            self._rig.put(int(ids / IDS_A_RECORD) + 1)

    def report(self) -> str:
        """Return what was done and found."""
        done = ", ".join(f"{strike.value} {self.struck[strike]}" for strike in Strike)
        points = ", ".join(f"{point or 'before a batch'} {count}" for point, count in self.stream.points.most_common())
        verdicts = ", ".join(f"{kind} {count}" for kind, count in self.stream.verdicts().most_common())
        return f"{len(self._rig.produced)} ids. {done}.\nAt, or at random after: {points}.\nVerdicts: {verdicts}."


def require_each_once(rig: KinesisRig, into: Sink) -> None:
    """Fail where a reader does not find exactly what was put, once."""
    expected = into.expected(rig)
    for reader in into.found:
        found = reader(rig)
        lost, doubled = sorted(expected - found), sorted(found - expected)
        assert (lost[:9], doubled[:9]) == ([], []), f"{len(lost)} lost, {len(doubled)} doubled or foreign"


@only_in_full  # fewer ids and kills: tests/integration/test_kinesis_stream.py
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("sink", SINKS)
def test_a_hundred_thousand_ids_land_once_though_drivers_planners_and_loops_are_killed_and_shards_change(
    postgres_18: Postgres, tmp_path: Path, name: str, sink: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    into = SINKS[sink]
    with Kinesis(tmp_path / "stand-in") as kinesis:
        overrides = {"spec.source.kinesis.maxRecordsPerTrigger": BATCH_IDS, **into.overrides(tmp_path)}
        rig = KinesisRig(kinesis, postgres_18, tmp_path, name, **overrides)
        struck = Struck(rig, into, seed)
        try:
            with recorded(f"from Kinesis into {sink}", IDS, f"{DRIVERS} drivers, {4 * OTHERS} others", seed):
                struck.run()
                require_each_once(rig, into)
        finally:
            with capsys.disabled():
                print(f"\nKinesis to {sink}: {struck.report()}\nAgain: KILL_SEED={seed} EVERY_MODE=1 make test-faults")
    assert struck.struck == TIMES
