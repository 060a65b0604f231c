"""JSON that a tenant may have written, parsed within a bound of memory. Performs no I/O.

A parsed value needs up to a hundred times the memory of its text (32 MiB of `[],` become 900 MB), so the values of a text are
counted before it is parsed. Who reads it may serve others, and parsing cannot be interrupted.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_VALUES = 250_000
"""Brackets and commas of one text; that many positions of partitions, or ranges of a third as many. About 50 MB at most."""

# Possessive, and a string may lack its end: so the time is linear, whatever the text is.
_STRING_OR_MARK = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)


class JsonRefused(ValueError):
    """A text is no JSON, or has more values or levels than any that belongs there."""


def parse_json(content: str | bytes, most_values: int = MOST_VALUES) -> Any:
    """Return what a JSON text says.

    Raises:
        JsonRefused: if it is no JSON in UTF-8, has more than `most_values` brackets and commas, or is nested too deeply.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        if _has_at_most(text, most_values):
            return json.loads(text)
    except RecursionError:
        raise JsonRefused("it is nested too deeply") from None
    except ValueError as problem:
        raise JsonRefused("it is not JSON") from problem
    raise JsonRefused(f"it has more than {most_values} values")


def _has_at_most(text: str, most: int) -> bool:
    """Whether so many values begin in a text; brackets and commas inside of strings begin none."""
    if sum(text.count(mark) for mark in "[{,") <= most:
        return True
    found = strings = 0
    for token in _STRING_OR_MARK.finditer(text):
        if token[0][0] == '"':
            strings += 1
        else:
            found += 1
        if max(found, strings - 2 * found) > most:
            return False
    return True
