"""A replay touches its file for named points and for what Spark does within a chunk, and for nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce_spark.connectors.files.dividing import FolderDivider
from exactlyonce_spark.progress import ProgressFile
from exactlyonce_spark.replay_progress import LOOK_SECONDS, touching, waiting, with_looks


@dataclass
class Touches(ProgressFile):
    """A file that counts its touches."""

    count: int = 0

    def touch(self) -> None:
        self.count += 1


@dataclass
class Work:
    """What a session says of its jobs, look after look; the test waits for the last of them."""

    says: Iterator[str | Exception]
    latest: str = ""
    looks_end: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> str:
        said = next(self.says, None)
        if said is None:
            self.looks_end.set()
            return self.latest
        if isinstance(said, Exception):
            raise said
        self.latest = said
        return said


def touches_of(*says: str | Exception) -> int:
    file, work = Touches(Path("nowhere")), Work(iter(says))
    with touching(file, work, 0.001):
        assert work.looks_end.wait(60)
    return file.count


def test_a_chunk_whose_rows_pass_shows_progress_and_one_that_stands_still_shows_none() -> None:
    assert touches_of("1 read: 5", "1 read: 9", "2 read: 9") == 3
    assert touches_of("1 read: 5", "1 read: 5", "1 read: 5") == 1, "what it was is learned once"


def test_a_session_that_does_nothing_yet_is_no_progress() -> None:
    assert touches_of() == 0
    assert touches_of("", "", "") == 0


def test_a_session_that_shows_no_signs_is_not_taken_for_one_that_hangs_and_is_looked_at_again() -> None:
    blind = AttributeError("executionMetrics")
    assert touches_of(blind, blind, blind) == 3, "a chunk that is slow would be replaced for what Spark does not tell"
    assert touches_of("1 read: 5", blind, "1 read: 9", "1 read: 9") == 3, "one look that fails is not the last one"


def test_each_named_point_is_a_touch() -> None:
    file = Touches(Path("nowhere"))
    for point in ("replay.claimed", "replay.begun", "replay.landed"):
        file.passed(point)
    assert file.count == 3


def test_a_replay_that_waits_for_its_limit_shows_progress_and_ends_as_soon_as_it_is_asked_to() -> None:
    """A file lands as a whole, so it may be worth more seconds than a replay may show no progress (driver.progressTimeout)."""
    file, waited, answers = Touches(Path("nowhere")), list[float](), iter((False, False, False, True))

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return next(answers)

    assert not waiting(file, wait, 2.5 * LOOK_SECONDS)
    assert (file.count, waited) == (3, [LOOK_SECONDS, LOOK_SECONDS, LOOK_SECONDS / 2])
    assert waiting(file, wait, 100 * LOOK_SECONDS)
    assert len(waited) == 4


def test_a_file_that_takes_long_to_count_shows_progress_while_it_is_counted_though_no_job_runs() -> None:
    """The limit may be a minute (driver.progressTimeout): a pod that counts a large file does not hang."""
    file, signs = SourceFile("large.json", 1 << 40, 1), set[str]()

    def counts(_file: object) -> Iterator[int]:
        for _ in range(5):
            signs.add(with_looks("", divider))
            yield 2000

    divider = FolderDivider("/lake", lambda _start, _end: (file,), counts)
    divider.first(Partition("/lake", 0), OffsetRange(NOTHING_READ, after(NOTHING_READ, [file])), 100)
    assert len(signs) == 5
    assert with_looks("1 read: 5", None) == "1 read: 5"
