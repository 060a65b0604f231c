"""How many keys JSON has. Parsers take the last of two equal keys in silence; the sum shows that there are two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
_BLOCK = 1 << 16
"""Bytes that are looked at together: what is made of them is not so large that it gets memory of its own each time."""
_QUOTE, _COLON, _BACKSLASH, _SPACE, _OPENING = b'":\\ {'

_HIGHEST = 0x8080_8080_8080_8080


def key_count(data: Bytes) -> int:
    """Return how many keys there are in JSON that a parser has taken; perhaps more than there are, never fewer.

    A colon after a quote, perhaps with blanks between, ends a key, unless a backslash escapes the quote: then it is within a
    text. A text that begins with a colon is counted as well.
    """
    found = 0
    for start in range(0, len(data), _BLOCK):
        # The bytes after the block show what follows its last quote, and those before it what precedes the first one.
        quotes, colons = data[start : start + _BLOCK] == _QUOTE, data[start + 1 : start + _BLOCK + 1] == _COLON
        follow = quotes[: len(colons)] & colons
        blanks = (data[start : start + len(colons)] <= _SPACE) & colons
        backslashes = data[max(start - 1, 0) : start + len(colons) - 1] == _BACKSLASH
        if blanks.any() or (backslashes & follow[len(follow) - len(backslashes) :]).any():
            return len(key_places(data))
        found += int(np.count_nonzero(follow))
    return found


def key_places(data: Bytes) -> npt.NDArray[np.int64]:
    """Return the places of the colons that `key_count` counts, in ascending order."""
    colons = np.flatnonzero(data == _COLON)
    before = colons - 1
    for place in np.flatnonzero(data[before] <= _SPACE):
        while before[place] > 0 and data[before[place]] <= _SPACE:
            before[place] -= 1
    quoted = (before >= 0) & (data[before] == _QUOTE)
    colons, before = colons[quoted], before[quoted]
    escaped = data[before - 1] == _BACKSLASH
    for place in np.flatnonzero(escaped):
        escaped[place] = _backslashes(data, int(before[place])) % 2
    found: npt.NDArray[np.int64] = colons[~escaped]
    return found


def _backslashes(data: Bytes, end: int) -> int:
    """Return how many backslashes are directly before a place."""
    start = end
    while start > 0 and data[start - 1] == _BACKSLASH:
        start -= 1
    return end - start


def bytes_of(text: bytes) -> Bytes:
    """Return bytes as numbers."""
    return np.frombuffer(text, np.uint8)


def object_count(data: Bytes) -> int:
    """Return how many objects there are, or more."""
    return sum(int(np.count_nonzero(data[at : at + _BLOCK] == _OPENING)) for at in range(0, len(data), _BLOCK))


def is_ascii(data: Bytes) -> bool:
    """Whether no byte has its highest bit set: then it is UTF-8, too."""
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.uint64)
    return int(np.bitwise_or.reduce(words)) & _HIGHEST == 0 and not (data[whole:] > 127).any()
