"""`python -m bench.monitor_process`: one process that measures streams when it is told to, and serves /metrics.

`--way shared` is the monitor as it is: one client a Kafka and a database. `--way own` gives each stream a Kafka client and a
connection of its own, made of what a pass asks with; all else is the same. A store is given a minute and not ten seconds, so
that a busy machine changes what a round takes, never what it finds.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import psycopg2.extensions
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from exactlyonce.api.status import Phase
from exactlyonce.assembly import LedgerKey, SourceKey
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.connectors.kafka.fleet import KafkaFleet
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.postgres.connection import PostgresAddress
from exactlyonce.connectors.postgres.fleet import PostgresFleet
from exactlyonce.connectors.postgres.ledger import DEFAULT_SCHEMA, PostgresLedger
from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.ledger.connector import Landed, TableSize
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Clients, Monitor
from exactlyonce.monitor.targets import Life, StreamKey, Target
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds

NAMESPACE = "bench"
LAG_OBJECTIVE_SECONDS = 300
_PATIENCE_SECONDS = 60


def stream_name(number: int) -> str:
    """Return the name of a stream, which is that of its topic."""
    return f"orders-{number:04}"


class OwnBrokers:
    """The Kafka client of one stream; its client.id tells which topic it asks for. It dates no records."""

    def __init__(self, key: SourceKey) -> None:
        properties = dict(key.parameters)
        source = KafkaSource(bootstrap_servers=properties["bootstrap.servers"], topics=(properties["client.id"],))
        self._source = KafkaBounds(source, {}, _PATIENCE_SECONDS)
        self._bounds: Mapping[Partition, Bounds] = {}

    def origins(self, specs: Collection[SourceSpec]) -> Origins:
        """Return the one topic with its partitions; the bounds came with it."""
        self._bounds = self._source.view().bounds
        return {origin: [key.key for key in self._bounds] for origin in {key.origin for key in self._bounds}}

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return what was asked before."""
        return Answer({key: self._bounds[key] for key in partitions}, {})

    def timestamps(self, positions: Mapping[Partition, int], *, committed_only: bool) -> dict[Partition, None]:
        """Refuse: each stream would need a consumer too."""
        raise NotImplementedError("streams with clients of their own are measured where nothing waits")

    def close(self) -> None:
        """Nothing: the client ends with the process."""


class OwnDatabase:
    """The connection of one stream."""

    def __init__(self, key: LedgerKey) -> None:
        self._ledger = PostgresLedger(PostgresAddress(dict(key.parameters), key.shown))
        self.name = key.shown

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> dict[str, Landed]:
        """Return where the streams have landed, by one question each."""
        found = {}
        for stream_id in since:
            view = self._ledger.view(stream_id)
            if view is not None:
                batch = view.stream.landed_batch
                found[stream_id] = Landed(batch, None, batch, view.landed.positions)
        return found

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        """Return nothing: the question would be the same for both."""
        return ()

    def close(self) -> None:
        """Close the connection."""
        self._ledger.close()


SHARED = Clients(
    lambda key: KafkaFleet(dict(key.parameters), _PATIENCE_SECONDS),
    lambda key: PostgresFleet(PostgresAddress(dict(key.parameters), key.shown), _PATIENCE_SECONDS),
)
OWN = Clients(OwnBrokers, OwnDatabase)


@dataclass
class Watching:
    """A monitor and how many streams it has been told of; stores are asked in one of the two ways."""

    way: str
    brokers: str
    dsn: str
    streams: int = 0
    monitor: Monitor = field(init=False)

    def __post_init__(self) -> None:
        self.monitor = Monitor(SHARED if self.way == "shared" else OWN)

    def watch(self, streams: int) -> None:
        """Tell of more streams, as passes tell of them, until there are so many."""
        for number in range(self.streams, streams):
            target = self._target(stream_name(number))
            self.monitor.watch(target)
            self.monitor.noted(target.key, Life(Phase.RUNNING, attempt=1, endings=0, batch_failures=0))
        self.streams = streams

    def _target(self, name: str) -> Target:
        own_client, own_connection = ([("client.id", name)], f"{name} at ") if self.way == "own" else ([], "")
        parameters = tuple(sorted(psycopg2.extensions.parse_dsn(self.dsn).items()))
        return Target(
            StreamKey(NAMESPACE, name),
            f"{NAMESPACE}/{name}",
            KafkaSource(bootstrap_servers=self.brokers, topics=(name,)),
            SourceKey("kafka", (("bootstrap.servers", self.brokers), *own_client), self.brokers),
            LedgerKey("postgres", parameters, f"{own_connection}the benchmark"),
            DEFAULT_SCHEMA,
            LAG_OBJECTIVE_SECONDS,
        )


def application(watching: Watching) -> web.Application:
    """Return the pages: /metrics as the operator serves it, and /round/N, which measures N streams once."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(watching.monitor, lambda: True, time.time))

    async def measure(request: web.Request) -> web.Response:
        watching.watch(int(request.match_info["streams"]))
        await watching.monitor.round()
        return web.Response(text="done")

    async def metrics(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    pages = web.Application()
    pages.add_routes([web.get("/round/{streams}", measure), web.get("/metrics", metrics)])
    return pages


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitor_process", description=__doc__.split("\n")[0])
    parser.add_argument("--way", choices=("shared", "own"), required=True)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--dsn", required=True, help="a connection string")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    pages = application(Watching(given.way, given.brokers, given.dsn))
    web.run_app(pages, host="127.0.0.1", port=given.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
