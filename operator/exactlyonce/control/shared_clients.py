"""Clients of stores, one for all streams with the same address and login: what takes long to make is made once.

The key is the content of what a client is made of, the login included: a rotated secret is another key, so the next attempt
has another client. The checkpoint's clients are shared in the same way (`checkpoint.s3_clients`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from exactlyonce.ledger.connector import LedgerAddress, OpenLedger
from exactlyonce.source.connector import SourceAddress
from exactlyonce.source.port import Source

UNUSED_SECONDS = 300.0
"""A client that nobody has asked for in this time is let go."""

Client = TypeVar("Client")


@dataclass
class ClientCache(Generic[Client]):
    """Clients by what they are made of; `let_go` is told of one that is dropped, which may still be in use."""

    clock: Callable[[], float]
    let_go: Callable[[Client], None] = lambda client: None
    _clients: dict[Hashable, tuple[Client, float]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, make: Callable[[], Client]) -> Client:
        """Return the client of a key; it is made where there is none. Making one asks nobody anything."""
        with self._guard:
            now = self.clock()
            for known, (client, used) in list(self._clients.items()):
                if now - used > UNUSED_SECONDS and known != key:
                    del self._clients[known]
                    self.let_go(client)
            found = self._clients[key][0] if key in self._clients else make()
            self._clients[key] = (found, now)
            return found


class SharedClients:
    """The clients of one operator; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledgers: ClientCache[OpenLedger] = ClientCache(clock, lambda ledger: ledger.close())
        self._clients: ClientCache[Any] = ClientCache(clock)

    def ledger(self, address: LedgerAddress) -> OpenLedger:
        """Return the ledger at an address, with connections that are used again."""
        return self._ledgers.get(address.key, address.open)

    def source(self, address: SourceAddress) -> Source:
        """Return the source of a stream, asked by the client that all streams of this server and this login share.

        Raises:
            SecretMissing, SourceRefused: if no client can be made of the properties and the secret.
        """
        return address.open(self._clients.get(address.key, address.client))
