"""When a stream is to be looked at again, and whether it is to run. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from exactlyonce.reconcile.loop import Done, Halted, PassResult, Waiting, Wanted, Watching

WATCH_SECONDS = 60.0
AT_REST: float | None = None
"""Only a change can matter to a stream at rest; the sweep over all streams looks at it now and then."""


@dataclass(frozen=True)
class Next:
    """When the stream is to be looked at again; None when only a change can matter. `outcome` is a word for the pass."""

    after_seconds: float | None
    outcome: str = field(default="", compare=False)


def wanted_of(document: Mapping[str, Any]) -> Wanted:
    """Return whether a resource asks for a stream that runs, whatever else it says."""
    return Wanted.REST if (document.get("spec") or {}).get("suspend") is True else Wanted.RUN


def _seconds_until(moment: datetime) -> float:
    return max((moment - datetime.now(UTC)) / timedelta(seconds=1), 0.0)


def next_pass(result: PassResult, wanted: Wanted) -> Next:
    """Return when a stream is to be looked at again after a pass that came to `result`."""
    match result:
        case Watching(until=until):
            return Next(WATCH_SECONDS if until is None else min(_seconds_until(until), WATCH_SECONDS), "watching")
        case Waiting(until=until):
            return Next(_seconds_until(until), "waiting")
        case Done(completed=False):
            return Next(0.0 if wanted is Wanted.RUN else AT_REST, "at_rest")
        case Done():
            return Next(AT_REST, "completed")
        case Halted():
            return Next(AT_REST, "halted")
        case _:
            assert_never(result)
