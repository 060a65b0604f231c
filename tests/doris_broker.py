"""A stream whose batches go into the stand-in for Doris by broker load; its files are in memory, its ids are counted there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exactlyonce.connectors.doris.staging import StagingLocation
from exactlyonce.errors import StoreUnreachable
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.positions.ranges import Ranges
from exactlyonce_spark.connectors.doris.broker_loads import DorisStagedLoads, StagingWriter
from exactlyonce_spark.connectors.doris.exchange import Node, Piece
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import Loads
from exactlyonce_spark.connectors.doris.query_client import QueryClient
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris.broker_loads import FileDenied
from testbed.doris.servers import StandIn
from tests.doris import client, ids
from tests.ledgers import STREAM
from tests.two_phase_stream import READS, World, span_of

LOCATION = "s3a://lake/staging"
READER = {"AWS_ACCESS_KEY_ID": "reader-key", "AWS_SECRET_ACCESS_KEY": "reader-secret/+%s"}
STAGING = StagingLocation.model_validate(
    {
        "location": LOCATION,
        "region": "eu-central-1",
        "secretRef": {"name": "writer"},
        "readerSecretRef": {"name": "reader"},
    }
)
ALL = Counter(1000 * int(key.key) + at for key, span in READS.items() for at in range(*span_of(span)))


@dataclass
class Folder:
    """A `StagingFolder`, and the bucket that the stand-in reads. `lost` puts have no answer: some are carried out."""

    files: dict[str, bytes] = field(default_factory=dict)
    lost: list[bool] = field(default_factory=list)
    location: str = LOCATION
    service: str = "Amazon S3"

    def put(self, path: str, pieces: Iterable[Piece]) -> None:
        is_lost = bool(self.lost)
        if not is_lost or self.lost.pop(0):
            self.files[path] = b"".join(pieces)
        if is_lost:
            raise StoreUnreachable(f"{path} could not be written")

    def holds(self, path: str) -> bool:
        return path in self.files

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def paths_below(self, folder: str) -> Iterator[str]:
        return iter([path for path in self.files if path.startswith(f"{folder}/")])

    def read(self, address: str, properties: Mapping[str, str]) -> bytes | None:
        """What the stand-in reads, with the login of a statement."""
        if properties["s3.secret_key"] != READER["AWS_SECRET_ACCESS_KEY"]:
            raise FileDenied(f"{properties['s3.access_key']}: SignatureDoesNotMatch")
        assert (properties["s3.endpoint"], properties["s3.region"]) == (
            "https://s3.eu-central-1.amazonaws.com",
            "eu-central-1",
        )
        return self.files.get(address.removeprefix("s3://lake/staging/"))


@dataclass
class BrokerWorld(World):
    """The stream of `World` into `orders`; an id says partition and offset."""

    folder: Folder = field(default_factory=Folder)
    server: StandIn = field(default_factory=StandIn)
    stages_from_bytes: int = 0
    reader: Mapping[str, str] = field(default_factory=lambda: READER)
    columns: tuple[str, ...] = ("id",)
    """Those of the query as it is now."""
    pauses: list[float] = field(default_factory=list)

    def target(self, permit: Permit | None = None) -> DorisTarget:
        doris = client(*self.server.frontends)
        labels, epoch = LoadLabels(STREAM, "token-1"), (permit or self.permit).epoch
        nodes = tuple(Node("127.0.0.1", port) for port in self.server.query_ports)
        query = QueryClient(nodes, doris.login, doris.database, 5.0, tuple(self.reader.values()))
        loads = DorisStagedLoads(
            query, doris, self.folder, STAGING, self.reader, self.columns, labels, epoch, self.pauses.append
        )
        return DorisTarget(
            Loads(doris, pause=lambda seconds: None),
            (DorisFit("id", "`id`"),),
            labels,
            epoch,
            staging=StagingWriter(self.folder, labels, 3, lambda seconds: None),
            stages_from_bytes=self.stages_from_bytes,
            broker_loads=loads,
        )

    def broker_loads(self) -> DorisStagedLoads:
        found = self.target().broker_loads
        assert found is not None
        return found

    def rows(self, ranges: Ranges) -> Sequence[Any]:
        return [
            pa.RecordBatch.from_pylist([{"id": str(1000 * int(key.key) + at)} for at in range(*span_of(span))])
            for key, span in ranges.items()
        ]

    def seen(self) -> Counter[int]:
        return Counter(ids(self.server))

    def decided(self) -> DecidedBatch:
        view = self.ledger.view(STREAM)
        assert view is not None
        assert view.decided is not None
        return view.decided
