"""Which data streams, their tables and MSK clusters the operator may reach with its own login, by namespace. Performs no I/O.

An administrator allows them (`sources.locations` of the chart); nothing is allowed by default. They are compared as they are
written: a data stream by its ARN, since a name alone means another stream in each account, a table by its region and name, a
cluster by the name that its brokers share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from exactlyonce.control.namespace_lists import NAMESPACE, ServiceAllowance, entries_of
from exactlyonce.schema.constraints import matches
from exactlyonce.schema.places import DATA_STREAM, MSK_PREFIX, NAMED_PLACES, TABLE_PREFIX, NamedPlace

_IN = rf"({DATA_STREAM}|{TABLE_PREFIX}[a-z0-9-]{{1,64}}/|{MSK_PREFIX})"
_PART = "[A-Za-z0-9_.-]"
_PLACE = rf"{_IN}{_PART}+"
# Before a `*`, a dot or an underscore follows {namespace}: no name of a namespace has one. Else `a-*` would mean `a-b-…` too.
_NAMES = rf"{_IN}({_PART}+|{_PART}*\*|{_PART}*\{{namespace\}}({_PART}*|[._]{_PART}*\*))"

Name = Annotated[
    str,
    Field(max_length=512),
    matches(
        _NAMES,
        f"write {NAMED_PLACES}; {NAMESPACE} may "
        f"stand once in the name and a * at its end; in a name with both, a dot or an underscore has to follow {NAMESPACE}",
    ),
]


class SourceAllowance(ServiceAllowance):
    """Some namespaces, and what their streams may read, and show what has landed in, with the operator's own login."""

    names: tuple[Name, ...] = Field(
        min_length=1, description="Data streams by ARN, lease tables, and clusters of Amazon MSK."
    )

    def allows(self, namespace: str, place: NamedPlace) -> bool:
        """Return whether a stream of this namespace may name this place."""
        return self.is_for(namespace, place.endpoint) and any(
            _is_named(place.name, name.replace(NAMESPACE, namespace)) for name in self.names
        )


@dataclass(frozen=True, slots=True)
class OperatorSources:
    """All that is allowed."""

    allowances: tuple[SourceAllowance, ...] = ()

    def allow(self, namespace: str, place: NamedPlace) -> bool:
        """Return whether the operator may reach what a stream of this namespace names with its own login."""
        return re.fullmatch(_PLACE, place.name, re.ASCII) is not None and any(
            allowance.allows(namespace, place) for allowance in self.allowances
        )


NO_SOURCES = OperatorSources()


def parse_sources(text: str) -> OperatorSources:
    """Return what the operator is started with: a JSON list of allowances, or nothing.

    Raises:
        ListUnusable: with a sentence for each thing that is wrong.
    """
    return OperatorSources(entries_of(text, _ALLOWANCES, "sources.locations"))


_ALLOWANCES = TypeAdapter(tuple[SourceAllowance, ...])


def _is_named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
