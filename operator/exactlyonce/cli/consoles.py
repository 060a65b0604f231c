"""The console that commands print on, and the table in which they list what a ledger holds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from exactlyonce.bounded_text import printable

_NO_SCREEN_CELLS = 1000


def console_of_output() -> Console:
    """Return the console; what does not go to a screen has no width that anything would have to fit into."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if narrow else _NO_SCREEN_CELLS)


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, object]], folded: str = "") -> None:
    """Print what each row has in these columns; neither the first, which names the row, nor `folded` is ever cut."""
    whole = (columns[0], folded)
    made = (Column(name, overflow="fold" if name in whole else "ellipsis") for name in columns)
    table = Table(*made, box=None, pad_edge=False)
    for row in rows:
        # What a server or a record said is text, never the markup that a table would take it for.
        table.add_row(*(Text(printable(str(row[name]))) for name in columns))
    console_of_output().print(table)
