"""What an administrator lists by namespace in the chart's values: namespaces by pattern, read as JSON. Performs no I/O."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from exactlyonce.api.resource import sentences_of
from exactlyonce.errors import Refused
from exactlyonce.schema.constraints import matches

_NAMESPACES = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?|[a-z0-9]?[-a-z0-9]*\*"

Entry = TypeVar("Entry")


class ListUnusable(Refused):
    """A list that an administrator has written is not in the form that it has to have."""


NamespacePattern = Annotated[
    str,
    Field(max_length=63),
    matches(_NAMESPACES, "write a namespace's name, or how names begin followed by a *, such as team-*"),
]


def is_like(namespace: str, pattern: str) -> bool:
    """Return whether a namespace is the one that a pattern names, or one whose name begins so."""
    return namespace.startswith(pattern[:-1]) if pattern.endswith("*") else namespace == pattern


def entries_of(text: str, entries: TypeAdapter[tuple[Entry, ...]], value: str) -> tuple[Entry, ...]:
    """Return the entries of a JSON list, or none of an empty text; `value` is the value of the chart that holds it.

    Raises:
        ListUnusable: with a sentence for each thing that is wrong.
    """
    if not text.strip():
        return ()
    try:
        return entries.validate_json(text)
    except ValidationError as problem:
        told = " ".join(sentences_of(problem))
        raise ListUnusable(f"{value} (an administrator sets it): {told}") from None
