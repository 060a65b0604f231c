"""What passes over streams are given: how a stream is made of a resource, how its status is written, how it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.port import Launcher
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.pass_context import PassContext


@dataclass(frozen=True)
class PassPorts:
    """What a stream's loop works with, what an attempt would be made of, and how ended attempts are cleaned up.

    `introduce` lets this version of the resource be known where it is not yet, so that the stream is measured; it raises
    `StreamIncomplete` where it cannot be.
    """

    context: PassContext
    plan: str
    clean_up: Callable[[Epoch, int], None]
    introduce: Callable[[], None] = lambda: None


PortsOf = Callable[[Stream, Mapping[str, Any], ResourceStatus, Callable[[str, str], None]], PassPorts]
Rendered = Callable[[StreamStatus, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Making:
    """How a stream is made of a resource: parsed, put together, or as its latest attempt was made."""

    ports_of: PortsOf
    parse: Callable[[Mapping[str, Any]], Stream] = lambda document: parse_stream(document, "the resource")
    last_made: Callable[[Mapping[str, Any]], Stream | None] = lambda document: None
    launcher_of: Callable[[Mapping[str, Any]], Launcher] | None = None


@dataclass(frozen=True)
class Writing:
    """How a status is rendered, and whether this process may write it."""

    rendered: Rendered
    may_act: Callable[[], bool]


@dataclass(frozen=True)
class Leaving:
    """What is done with a stream that is being deleted, and with one that is gone."""

    deletion: Callable[[dict[str, Any]], float | None]
    forget: Callable[[Key], None] = lambda key: None
    orphans: Callable[[Key], None] = lambda key: None
