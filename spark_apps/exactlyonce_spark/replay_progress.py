"""Whether a replay makes progress: it passes a named point, a task ends, a row is handled, or its divider looks at a record.

The main thread waits for Spark while a chunk is read, so another one asks for these signs. It touches the file only where they
differ from those before: a JVM that is frozen does not answer, and a Python that is frozen does not ask. One that answers and
shows no signs is touched for, as a driver is: what cannot be judged is not replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exactlyonce_spark.progress import ProgressFile
from exactlyonce_spark.replay_parts import RangeDivider

LOOK_SECONDS = 5.0


def with_looks(work: str, divider: RangeDivider | None) -> str:
    """Return what Spark has done and what a divider has looked at, which runs no job: a large file takes it a while."""
    return work if divider is None else f"{work} {divider.looked_at}"


def waiting(progress: ProgressFile, wait: Callable[[float], bool], seconds: float) -> bool:
    """Wait until `wait` says that the end is asked for, at most so long; who waits for the limit of a replay does not hang."""
    while seconds > 0:
        progress.touch()
        if wait(min(seconds, LOOK_SECONDS)):
            return True
        seconds -= LOOK_SECONDS
    return False


@contextmanager
def touching(progress: ProgressFile, work: Callable[[], str], seconds: float = LOOK_SECONDS) -> Iterator[None]:
    """Touch the file whenever `work` returns another text than at the look before, until the block ends."""
    ended = threading.Event()
    looking = threading.Thread(
        target=_touch_while_it_moves, args=(progress, work, seconds, ended), name="progress", daemon=True
    )
    looking.start()
    try:
        yield
    finally:
        ended.set()


def _touch_while_it_moves(
    progress: ProgressFile, work: Callable[[], str], seconds: float, ended: threading.Event
) -> None:
    before = ""
    while not ended.wait(seconds):
        try:
            now = work()
        except Exception as problem:  # one look says nothing of the next
            progress.blind(problem)
            continue
        if now != before:
            progress.touch()
        before = now
