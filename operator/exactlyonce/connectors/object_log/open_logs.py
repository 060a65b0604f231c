"""Where a log is, and the logs that this process has open; the same for every store that a log can be in."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakValueDictionary

from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.log import ObjectLog

Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LogAddress:
    """The place of a log, `shown` to people.

    `server` is the place with the login: a log is asked alone, since no request to a store is about two of them.
    """

    server: Parameters = field(repr=False)
    shown: str

    @property
    def key(self) -> Hashable:
        """The place and the login."""
        return self.server

    @property
    def space(self) -> str:
        """The place."""
        return self.shown


class OpenLogs:
    """The logs of one kind of store that this process has open, so that each entry is read and kept once."""

    def __init__(self, store_of: Callable[[Parameters], ObjectStore]) -> None:
        self._store_of = store_of
        self._guard = Lock()
        self._logs: WeakValueDictionary[Parameters, ObjectLog] = WeakValueDictionary()

    def at(self, server: Parameters) -> ObjectLog:
        """Return the log at a place; it is kept for as long as somebody uses it."""
        with self._guard:
            found = self._logs.get(server)
            if found is None:
                found = self._logs[server] = ObjectLog(self._store_of(server))
            return found
