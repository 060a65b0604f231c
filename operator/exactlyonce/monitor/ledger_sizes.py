"""How large each ledger's tables are: asked beside the streams' question, once a minute for each schema of a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from exactlyonce.assembly import LedgerKey
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.connector import TableSize

MEASURE_SECONDS = 60.0


class SizedDatabase(Protocol):
    """A database that tells how large a ledger is; see `ledger.connector.LedgerFleet`."""

    @property
    def name(self) -> str:
        """What the database is called, whoever asks it."""
        ...

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        """Return the size of each table of the ledger."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """The tables of one ledger: the database without its login, the schema, and how large each is."""

    database: str
    schema: str
    tables: tuple[TableSize, ...]


@dataclass
class LedgerSizes:
    """What was last measured of each ledger; safe to use from several threads."""

    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _measured: dict[tuple[LedgerKey, str], tuple[float, str, tuple[TableSize, ...]]] = field(default_factory=dict)

    def measure(self, key: LedgerKey, database: SizedDatabase, schemas: Collection[str]) -> None:
        """Ask about the schemas that were not asked about for a minute; without an answer what was last known stays."""
        now = self.clock()
        with self._guard:
            for gone in [known for known in self._measured if known[0] == key and known[1] not in schemas]:
                del self._measured[gone]
            due = [
                schema for schema in schemas
                if (key, schema) not in self._measured or now - self._measured[key, schema][0] >= MEASURE_SECONDS
            ]  # fmt: skip
        for schema in due:
            try:
                tables = database.sizes(schema)
            except ExactlyOnceError:
                continue  # whether the database answers is told by the streams' own question
            with self._guard:
                self._measured[key, schema] = (now, database.name, tables)

    def keep(self, used: Collection[object]) -> None:
        """Forget the databases that no stream uses any more."""
        with self._guard:
            for key in [known for known in self._measured if known[0] not in used]:
                del self._measured[key]

    def all(self) -> list[LedgerSize]:
        """Return what is known of each ledger, once however many logins it is asked with."""
        with self._guard:
            measured = dict(self._measured)
        latest: dict[tuple[str, str], tuple[float, tuple[TableSize, ...]]] = {}
        for (_, schema), (at, database, tables) in measured.items():
            found = (at, tables)
            name = (database, schema)
            latest[name] = max(latest.get(name, found), found, key=lambda known: known[0])
        return [LedgerSize(*name, tables) for name, (_, tables) in sorted(latest.items())]
