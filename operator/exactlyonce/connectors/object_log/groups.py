"""How rows are written as groups: what rows share stands once, as the head of a group, and an item for each follows.

So a batch that failed in a thousand partitions is one head and a thousand short lists. Errors and notes, which may be long, are
in a list of texts of the document, each once, and rows refer to them by their places there. Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from exactlyonce.json_values import count, items

Json = Any
Rest = tuple[Any, ...]
Head = tuple[Hashable, ...]


class Codec(NamedTuple):
    """A row to the head and the item of a group, and back; and what tells it from the stream's other rows of the table.

    `encode` adds texts to those that there are, by their places.
    """

    encode: Callable[[Rest, Any, dict[str, int]], tuple[Head, list[Json]]]
    decode: Callable[[Sequence[Json], Sequence[Json], Sequence[str]], tuple[Rest, Any]]
    known_by: tuple[Callable[[Json], Hashable], ...] = ()


def alone(encode: Callable[[Any], Json], decode: Callable[[Json], Any], *known_by: Callable[[Json], Hashable]) -> Codec:
    """Return the codec of rows that share nothing."""

    def to_item(rest: Rest, row: Any, _texts: dict[str, int]) -> tuple[Head, list[Json]]:
        return (), [*rest, encode(row)]

    def from_item(head: Sequence[Json], item: Sequence[Json], _texts: Sequence[str]) -> tuple[Rest, Any]:
        items(head, 0)
        *rest, row = items(item, len(known_by) + 1)
        return tuple(read(it) for read, it in zip(known_by, rest, strict=True)), decode(row)

    return Codec(to_item, from_item, known_by)


def place_of(text: str, texts: dict[str, int]) -> int:
    """Return where a text stands in the list of texts, to which it is added unless it is there."""
    return texts.setdefault(text, len(texts))


def text_at(place: Json, texts: Sequence[str]) -> str:
    """Return the text that stands there."""
    return texts[count(place)]
