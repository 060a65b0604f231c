"""How long Kinesis is asked, and how often it has to say that something is gone before that is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from exactlyonce.aws.calls import Clock
from exactlyonce.errors import OriginMissing, SourceUnreachable

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

MISSING_SECONDS = 3.0
"""How long Kinesis has to continue saying that a stream or a shard is gone: what follows from it is the loss of a position."""

_PAUSE_SECONDS = 0.5
_AT_ONCE = 8


@dataclass(frozen=True)
class Deadline:
    """Until when calls have to be answered, in the clock's elapsed seconds."""

    clock: Clock
    at_seconds: float

    @classmethod
    def within(cls, clock: Clock, seconds: float) -> Deadline:
        """Return the one that is so many seconds from now."""
        return cls(clock, clock.elapsed_seconds() + seconds)

    @property
    def has_passed(self) -> bool:
        """Whether no further call may be made."""
        return self.clock.elapsed_seconds() >= self.at_seconds

    def leaves(self, seconds: float) -> bool:
        """Whether there is so much time left."""
        return self.clock.elapsed_seconds() + seconds <= self.at_seconds

    def sooner(self, seconds: float) -> Deadline:
        """Return the one that is so many seconds from now, or this one where it comes first."""
        return Deadline(self.clock, min(self.at_seconds, self.clock.elapsed_seconds() + seconds))

    def require(self, what: str) -> None:
        """Require that there is time left; `what` says what else has not happened, or is not known.

        Raises:
            SourceUnreachable: if there is none.
        """
        if self.has_passed:
            raise SourceUnreachable(f"Kinesis took too long to answer: {what}. It is asked again in the next pass.")


def surely(clock: Clock, call: Callable[[], _Answer]) -> _Answer:
    """Return what `call` returns; that something is missing is believed once it has been the answer for `MISSING_SECONDS`.

    Raises:
        OriginMissing: if it is missing.
    """
    believed_at = clock.elapsed_seconds() + MISSING_SECONDS
    while True:
        try:
            return call()
        except OriginMissing:
            if clock.elapsed_seconds() >= believed_at:
                raise
            clock.sleep(_PAUSE_SECONDS)


def each(call: Callable[[_Asked], _Answer], asked: Iterable[_Asked]) -> Iterator[_Answer]:
    """Yield the answers for many shards in their order, asked for by a few threads at once.

    Raises:
        Whatever `call` raises: what was not begun by then is not asked for.
    """
    items = list(asked)
    if len(items) < 2:
        yield from map(call, items)
        return
    pool = ThreadPoolExecutor(min(_AT_ONCE, len(items)), thread_name_prefix="kinesis-bounds")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
