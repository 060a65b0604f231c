"""A stream from Kafka into the stand-in for Doris; the ids are counted in the stand-in's own database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.doris.cluster import Cluster, Login
from testbed.doris.servers import StandIn
from testbed.doris.tables import Column, Table
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.doris import DATABASE, PASSWORD
from tests.rig import Rig

ORDERS = "orders"
TABLE = Table(
    ORDERS,
    (
        Column("id", "BIGINT", is_key=True, nullable=False),
        Column("customer", "VARCHAR", length=50),
        Column("amount", "DECIMAL64", precision=12, scale=2),
    ),
)
LOGIN = {"user": "loader", "password": PASSWORD}
HOUR_SECONDS = 3600.0

Happening = Callable[[], None]


@dataclass
class EventfulCluster(Cluster):
    """The stand-in's cluster, in which something happens as a load of a batch begins, or just before one is committed.

    What happens to a batch happens once; the batch is the one that the label names.
    """

    at_load: dict[int, Happening] = field(default_factory=dict)
    at_commit: dict[int, Happening] = field(default_factory=dict)

    def begin(self, database: str, table: str, headers: Mapping[str, str]) -> Any:
        """Take the header of a load."""
        self.at_load.pop(batch_of(headers["label"]), _nothing)()
        return super().begin(database, table, headers)

    def operate(self, database: str, headers: Mapping[str, str]) -> str:
        """Commit or abort a load."""
        known = self.transactions_of(database).known.get(int(headers.get("txn_id", "0")))
        if known is not None and headers["txn_operation"] == "commit":
            self.at_commit.pop(batch_of(known.label), _nothing)()
        return super().operate(database, headers)


def _nothing() -> None:
    """Continue."""


def batch_of(label: str) -> int:
    """Return the batch that a label of a stream names."""
    return int(label.split(":")[4])


class DorisRig(Rig):
    """One stream into Doris. Its ledger is a log in a folder beside the checkpoint."""

    def __init__(
        self, kafka: Kafka, postgres: Postgres, folder: Path, name: str, server: StandIn, **overrides: Any
    ) -> None:
        self.server = server
        given = {
            "spec.transform": {"sql": "select id, customer, amount from source"},
            "spec.sink": {
                "doris": {
                    "frontends": server.frontends,
                    "database": DATABASE,
                    "table": ORDERS,
                    "secretRef": {"name": "doris"},
                    "retries": 1,
                }
            },
            **overrides,
        }
        super().__init__(kafka, postgres, folder, name, given, partitions=2)
        self.write_login("doris", LOGIN)

    def counts(self, table: str = ORDERS) -> Counter[int]:
        """Return how often each id is in the table, as a reader of Doris sees it."""
        return Counter(dict(self.server.cluster.select(f'select id, count(*) from "{DATABASE}.{table}" group by id')))

    def landed(self) -> int:
        """Return how many rows a reader of Doris sees."""
        return self.counts().total()


def eventful(frontends: int = 1) -> StandIn:
    """Return the stand-in with its table, not started yet."""
    cluster = EventfulCluster({LOGIN["user"]: Login(LOGIN["password"])})
    cluster.create(DATABASE, TABLE)
    return StandIn(cluster, frontend_count=frontends)
