"""What a stream lacks before an attempt of it can be made, such as a secret or room for its pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.port import LaunchFailed, NotCreated

Lack = ExactlyOnceError | LaunchFailed
"""What tells that something is missing: a secret that is not there, or the API server that refuses a pod."""


class StreamIncomplete(ExactlyOnceError):
    """Something that an attempt is made of is missing; `problem` says what."""

    def __init__(self, problem: Lack) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def assembling() -> Iterator[None]:
    """Tell every error of the block as something that the stream lacks."""
    try:
        yield
    except ExactlyOnceError as problem:
        raise StreamIncomplete(problem) from problem


def rehearsing(rehearse: Callable[[], None]) -> Callable[[], None]:
    """Return `rehearse` as a pass calls it: a refusal of the API server is something that the stream lacks.

    Whatever else keeps it from being answered says nothing of the stream, and is left to the pass.
    """

    def rehearsed() -> None:
        try:
            rehearse()
        except NotCreated as problem:
            raise StreamIncomplete(problem) from problem

    return rehearsed
