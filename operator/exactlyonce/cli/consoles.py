"""The console that a command prints its tables on."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_NO_SCREEN_CELLS = 1000


def console_of_output() -> Console:
    """Return the console; what does not go to a screen has no width that anything would have to fit into."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if narrow else _NO_SCREEN_CELLS)
