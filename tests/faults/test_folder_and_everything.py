"""100,000 ids from a folder that files are put into meanwhile, while all that takes part is killed (make test-full).

Ids are counted in the table by SQL. STRUCK_IDS and STRUCK_DRIVERS set the size, KILL_SEED the order of what is done.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import assert_never

import pytest

from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.folder_rig import FolderRig
from tests.rig import eventually
from tests.struck_report import recorded
from tests.struck_stream import StruckStream

IDS = int(os.environ.get("STRUCK_IDS", "100000"))
FILES_OF_A_BATCH, IDS_OF_A_FILE = 8, 100
"""Most files of a batch, and how many ids one has on average."""
BATCH_IDS = FILES_OF_A_BATCH * IDS_OF_A_FILE
EARLIEST, SPAN_SECONDS = 1_600_000_000, 100_000_000
"""When files were written, as they say: many that come later are older than those that were read."""

PLANNER = "source.end-planned"
POINTS = (
    "batch.planned", "batch.begun", "batch.rows-written", "batch.source-checked", "land.fenced", "land.rows-moved",
    "land.positions-advanced", "land.before-commit", "batch.landed", "task.committed",
)  # fmt: skip
"""Those that each batch of a folder passes."""


class Strike(Enum):
    """What is done next."""

    DRIVER = "driver killed at a moment drawn at random"
    POINT = "driver killed at a named point"
    PLANNER = "planner killed when a batch's files are listed and in no log yet"
    LOOP = "loop killed, and its driver with it"
    GENERATION = "the same, and the generation in use is removed"


DRIVERS = int(os.environ.get("STRUCK_DRIVERS", "20"))
OTHERS = -(-DRIVERS // 8)
TIMES = {
    Strike.DRIVER: DRIVERS // 2,
    Strike.POINT: DRIVERS - DRIVERS // 2,
    **dict.fromkeys((Strike.PLANNER, Strike.LOOP, Strike.GENERATION), OTHERS),
}


class Struck:
    """A stream, and what is done to it in an order drawn from a seed."""

    def __init__(self, rig: FolderRig, seed: int) -> None:
        self._rig = rig
        self._seed = seed
        self._dice = random.Random(seed)
        self._sizes = random.Random(seed)  # how many files come before which strike is a matter of time
        named = {**dict.fromkeys(POINTS, "kill-driver"), PLANNER: "kill"}
        self.stream = StruckStream(rig, "from a folder", seed, named)
        self.struck: Counter[Strike] = Counter()
        self._points: list[str] = []

    def run(self) -> None:
        """Do it all while files are put into the folder, then let the stream take the rest."""
        strikes = [strike for strike, times in TIMES.items() for _ in range(times)]
        self._dice.shuffle(strikes)
        self._put(IDS // len(strikes))
        self.stream.start()
        try:
            for number, strike in enumerate(strikes, 1):
                least = 1 if number == 1 else 0  # a generation is rebuilt where something has landed
                ready = partial(self._is_ready, self._dice.randint(least, 2))
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
                self._kill_at(self._next_point())
            case Strike.PLANNER:
                self._kill_at(PLANNER)
            case Strike.LOOP:
                self.stream.pause(self._dice.uniform(0, 1))
                self.stream.kill_loop()
            case Strike.GENERATION:
                self.stream.pause(self._dice.uniform(0, 1))
                self.stream.kill_loop(lambda: shutil.rmtree(self._rig.generations()[-1]))
            case _:
                assert_never(strike)

    def _next_point(self) -> str:
        """Return a point that was drawn: each of them comes before one comes again."""
        if not self._points:
            self._points = self._dice.sample(POINTS, len(POINTS))
        return self._points.pop()

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
        """Return how many rows there are: for the pace alone."""
        found = self.stream.query("select count(*) from orders")
        return 0 if found is None else int(found[0][0])

    def _put(self, ids: int) -> None:
        """Put files of different sizes and times into the folder, which hold so many new ids together."""
        while ids > 0:
            of_this = min(ids, self._sizes.randint(1, 2 * IDS_OF_A_FILE))
            self._rig.put(1, ids_each=of_this, seconds=EARLIEST + self._sizes.randrange(SPAN_SECONDS))
            ids -= of_this

    def report(self) -> str:
        """Return what was done and found."""
        done = ", ".join(f"{strike.value} {self.struck[strike]}" for strike in Strike)
        points = ", ".join(f"{point or 'before a batch'} {count}" for point, count in self.stream.points.most_common())
        verdicts = ", ".join(f"{kind} {count}" for kind, count in self.stream.verdicts().most_common())
        return (
            f"{len(self._rig.produced)} ids in {self._rig.files} files. {done}.\n"
            f"At, or at random after: {points}.\nVerdicts: {verdicts}."
        )


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.json")} if folder.exists() else set()


@only_in_full  # fewer ids and kills: tests/integration/test_folder_stream.py
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("clean", ["Off", "Archive"])
def test_a_hundred_thousand_ids_land_once_though_drivers_planners_and_loops_are_killed_while_files_come(
    postgres_18: Postgres, tmp_path: Path, name: str, clean: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    archive = tmp_path / "archive"
    cleaning: Mapping[str, str] = {"cleanSource": clean} | ({"archivePath": str(archive)} if clean == "Archive" else {})
    rig = FolderRig(postgres_18, tmp_path, name)
    rig.overrides["spec.source"]["files"] |= {"maxFilesPerTrigger": FILES_OF_A_BATCH, **cleaning}
    struck = Struck(rig, seed)
    try:
        with recorded(f"from a folder, cleanSource: {clean}", IDS, f"{DRIVERS} drivers, {3 * OTHERS} others", seed):
            struck.run()
            rig.assert_exactly_once()
    finally:
        with capsys.disabled():
            print(f"\nA folder, cleanSource {clean}: {struck.report()}")
            print(f"Again: KILL_SEED={seed} EVERY_MODE=1 STRUCK_IDS={IDS} STRUCK_DRIVERS={DRIVERS} make test-faults")
    assert struck.struck == TIMES
    assert struck.stream.verdicts()["RebuildFromSink"] >= OTHERS, "each generation that was removed"
    kept, archived = _names(rig.incoming), _names(archive)
    assert len(kept) + len(archived) == len(kept | archived) == rig.files, "each file is there, in one place"
    if clean == "Off":
        assert archived == set()
