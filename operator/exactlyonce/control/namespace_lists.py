"""What an administrator lists by namespace in the chart's values: namespaces by pattern, read as JSON. Performs no I/O."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from exactlyonce.api.resource import sentences_of
from exactlyonce.errors import Refused
from exactlyonce.schema.constraints import matches
from exactlyonce.schema.model import DNS_LABEL, Model
from exactlyonce.schema.places import SERVICE_ADDRESS

NAMESPACE = "{namespace}"
"""Stands for the name of the stream's namespace in what an allowance lists."""

_NAMESPACES = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?|[a-z0-9]?[-a-z0-9]*\*"

Entry = TypeVar("Entry")


class ListUnusable(Refused):
    """A list that an administrator has written is not in the form that it has to have."""


NamespacePattern = Annotated[
    str,
    Field(max_length=63),
    matches(_NAMESPACES, "write a namespace's name, or how names begin followed by a *, such as team-*"),
]

ServiceAddress = Annotated[
    str,
    Field(max_length=1024),
    matches(f"({SERVICE_ADDRESS})?", "write it as streams do, as https://host:port; leave it out for Amazon's"),
]


class ServiceAllowance(Model):
    """Some namespaces, and the service at which the operator may use its own login for their streams."""

    namespaces: tuple[NamespacePattern, ...] = Field(min_length=1, description="Namespaces by name or pattern.")
    endpoint: ServiceAddress = Field("", description="The address of their service; Amazon's when empty.")

    def is_for(self, namespace: str, endpoint: str | None) -> bool:
        """Return whether it is for the streams of this namespace at this service; None is Amazon's.

        Another name than a namespace can have is refused: it would be put in place of `NAMESPACE`.
        """
        return (
            re.fullmatch(DNS_LABEL, namespace, re.ASCII) is not None
            and any(is_like(namespace, pattern) for pattern in self.namespaces)
            and _canonical_endpoint(endpoint) == _canonical_endpoint(self.endpoint)
        )


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


def _canonical_endpoint(endpoint: str | None) -> str | None:
    """Return the address of a service as it is compared: scheme and host have no case. Another port is another service."""
    return endpoint.rstrip("/").lower() if endpoint else None
