"""What connectors make of errors that Spark tells: each has a module `failures`. No pyspark here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from exactlyonce.connectors.registry import SINKS, SOURCES


@dataclass(frozen=True, slots=True)
class Recognised:
    """The name of a kind of error, and a message for a person."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Failures:
    """How a connector's own errors are known: the constant `FAILURES` of its module `failures`.

    `recognise` is given all that Spark tells. `outage` is asked where nothing else is known of what went wrong: a message, if
    the store did not answer. `told` is given the name and the words of an error in Python and all that Spark tells: a
    message, if the error is one of the connector's client. `refused_rows` is given the message for a person: how many rows it
    says that the sink has refused.
    """

    recognise: Callable[[str], Recognised | None] = lambda _text: None
    outage: Callable[[str], str | None] = lambda _text: None
    told: Callable[[str, str, str], str | None] = lambda _name, _said, _text: None
    refused_rows: Callable[[str], int | None] = lambda _message: None


def failures_of_connectors() -> Iterator[Failures]:
    """Return those of every connector: what ends a driver does not say which one it is of."""
    for name in dict.fromkeys((*SOURCES, *SINKS)):
        yield cast("Failures", import_module(f"exactlyonce_spark.connectors.{name}.failures").FAILURES)
