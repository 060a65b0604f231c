"""Until when a pass may ask stores: each call has its limit, and many that stay just within theirs would hold a worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from exactlyonce.errors import PassTooLong


@dataclass(frozen=True)
class Deadline:
    """A moment by a clock, in seconds. It is looked at between two calls, so the longest call comes on top."""

    clock: Callable[[], float] = time.monotonic
    until: float = math.inf

    def within(self, seconds: float) -> Deadline:
        """Return the moment in so many seconds, or this one if that is earlier."""
        return replace(self, until=min(self.until, self.clock() + seconds))

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be asked."""
        return self.clock() > self.until

    def require(self) -> None:
        """Require that it is not over.

        Raises:
            PassTooLong: if it is.
        """
        if self.is_over:
            raise PassTooLong("The stores of this stream have answered too slowly for one pass; it will be retried")


NEVER = Deadline()
"""For whoever may take as long as it takes."""
