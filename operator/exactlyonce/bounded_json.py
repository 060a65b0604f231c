"""JSON that a tenant may have written, parsed within a bound of memory. Performs no I/O.

A parsed value needs up to a hundred times the memory of its text (32 MiB of `[],` become 900 MB), so the values of a text are
counted before it is parsed. Who reads it may serve others, and parsing cannot be interrupted.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_VALUES = 250_000
"""Brackets and commas of one text; that many positions of partitions, or ranges of a third as many. Some 60 MB at most."""

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading parsed JSON raises that is of another shape than the one that belongs there."""

_FEW = 10_000
"""So few are not told from those inside of strings."""

# Possessive, and a string may lack its end: so the time is linear, whatever the text is.
_STRING_OR_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)


class JsonRefused(ValueError):
    """A text is no JSON, or has more values or levels than any that belongs there; `str()` says what it is."""


def parse_json(content: str | bytes, most_values: int = MOST_VALUES, *, names_once: bool = False) -> Any:
    """Return what a JSON text says; where `names_once`, no object may have a name twice, of which the last would count.

    Raises:
        JsonRefused: if it is no JSON in UTF-8, has more than `most_values` brackets and commas, is nested too deeply, or has a
            name twice.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        if values_in(text, most_values) <= most_values:
            return json.loads(text, object_pairs_hook=_of_names_once if names_once else None)
    except JsonRefused:
        raise
    except RecursionError:
        raise JsonRefused("JSON that is nested too deeply") from None
    except ValueError as problem:
        raise JsonRefused("not JSON") from problem
    raise JsonRefused(f"JSON with more than {most_values} values")


def _of_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise JsonRefused("JSON with a name twice in one object")
    return found


def values_in(text: str, most: int) -> int:
    """Return how many brackets and commas a text has outside of strings, or `most` + 1 where there are more.

    Of a JSON text, it has at most twice as many values, and one. Few of them may count those inside of strings, too.
    """
    found = sum(text.count(mark) for mark in "[{,")
    if found <= min(_FEW, most):
        return found
    found = strings = 0
    for token in _STRING_OR_MARK.finditer(text):
        if token[0][0] == '"':
            strings += 1
        else:
            found += 1
        if found > most or strings > 2 * found + _FEW:  # a JSON text has no more strings than values and their names
            return most + 1
    return found
