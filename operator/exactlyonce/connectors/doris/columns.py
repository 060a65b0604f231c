"""`sink.doris.columns`: which columns of the query are sent, and which of the table Doris computes of them. Performs no I/O.

An entry is written as Doris has it: `name`, which the query yields, or `name=expression`, which is a column of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from exactlyonce.schema.constraints import matches

_NAME = r"[^\x00-\x20\x7f`,=()]{1,256}"
_EXPRESSION = r"[ -~]{1,1000}"

_NAMED = re.compile(rf"({_NAME})")
_COMPUTED = re.compile(rf"({_NAME})=({_EXPRESSION})")

Column = Annotated[
    str,
    Field(min_length=1, max_length=1257),
    matches(
        f"{_NAME}(={_EXPRESSION})?",
        "write name or name=expression: a name without spaces, commas, quotes and parentheses, and an expression of Doris in "
        "printable ASCII",
    ),
]


@dataclass(frozen=True, slots=True)
class Columns:
    """What `columns` says: the names that the query yields, and the expression of each column that Doris computes."""

    sent: tuple[str, ...]
    computed: tuple[tuple[str, str], ...]

    @property
    def is_given(self) -> bool:
        """Whether the stream says which columns there are."""
        return bool(self.sent or self.computed)

    def is_read(self, name: str) -> bool:
        """Whether an expression has this name in it; case does not count."""
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
        return any(word.search(expression) for _, expression in self.computed)


def columns_of(entries: Iterable[str]) -> Columns:
    """Return what entries say; each is one that the resource takes."""
    entries = tuple(entries)
    computed = (_COMPUTED.fullmatch(one) for one in entries)
    return Columns(
        tuple(one for one in entries if _NAMED.fullmatch(one)),
        tuple((one[1], one[2].strip()) for one in computed if one is not None),
    )
