"""What a person sees of the demo: lines as things happen, and a bar that stays below them."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_PLAIN_SECONDS = 10.0


class Screen:
    """A console with two bars; where it is not a terminal, a line every few seconds instead."""

    def __init__(self, total: int, place: str) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._plain_at = 0.0
        columns = (TextColumn("{task.description:>19}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self._produced = self._progress.add_task("produced", total=total)
        self._landed = self._progress.add_task(place, total=total)
        self._place = place
        self._total = total

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str, style: str = "") -> None:
        """Print a line with the seconds since the start."""
        seconds = time.monotonic() - self._started
        self.console.print(f"[dim]{seconds:6.1f} s[/dim]  {escape(line)}", style=style)

    def move(self, produced: int, landed: int) -> None:
        """Move the bars."""
        self._progress.update(self._produced, completed=produced)
        self._progress.update(self._landed, completed=landed)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._plain_at > _PLAIN_SECONDS:
            self._plain_at = now
            self.say(f"{produced:,} produced, {landed:,} {self._place}, of {self._total:,}")
