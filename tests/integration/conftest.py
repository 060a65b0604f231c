"""Every kind of ledger that there is: what holds for one of them holds for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.s3 import S3LogStore
from exactlyonce.checkpoint.store import ObjectStore
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.ledger.fence import NewStream
from exactlyonce.ledger.port import Ledger
from testbed.dynamo_db import DynamoDb
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.conftest import QUICK, address_of
from tests.ledger_kinds import LEDGERS
from tests.ledgers import new_stream
from tests.s3_stores import BUCKET, service_of
from tests.simulation.database import MemoryDatabase, MemoryLedger


@pytest.fixture(params=LEDGERS)
def ledger(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Iterator[Ledger]:
    """A new ledger of each kind."""
    kind: str = request.param
    if kind == "memory":
        yield MemoryLedger(MemoryDatabase())
        return
    if kind.startswith("object log"):
        store = object_store(request, name, tmp_path)
        # So short that every test of some transactions goes through snapshots and pruning.
        log = ObjectLogLedger(ObjectLog(store, "ledger", snapshot_every=2, archived_from_bytes=1))
        log.prepare()
        yield log
        return
    words = kind.split()
    server: Postgres = request.getfixturevalue(f"postgres_{words[1]}")
    port = request.getfixturevalue("pooler").port if "pooler" in words else None
    made = PostgresLedger(address_of(server, "postgres", port=port), schema=name, limits=QUICK)
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def stream(ledger: Ledger) -> NewStream:
    """What the row of a new stream says."""
    return new_stream(ledger)


@pytest.fixture(scope="session")
def s3(servers: Path) -> Iterator[S3]:
    """An S3 service with a bucket, for tests that neither stop it nor look at all that it holds."""
    with S3(servers / "s3") as service:
        service.create_bucket(BUCKET)
        yield service


@pytest.fixture
def location(name: str) -> str:
    """A folder of the test's own in the bucket."""
    return f"s3a://{BUCKET}/checkpoints/{name}"


@pytest.fixture
def store(s3: S3, location: str) -> S3LogStore:
    """The store of that folder."""
    return S3LogStore(location, service_of(s3))


@pytest.fixture(scope="session")
def dynamo_db(servers: Path) -> Iterator[DynamoDb]:
    """A DynamoDB service, for tests that do not stop it."""
    with DynamoDb(servers / "dynamo_db") as service:
        yield service


def object_store(request: pytest.FixtureRequest, name: str, folder: Path) -> ObjectStore:
    """Return the store that an object log of the test is in."""
    if request.param.endswith("disk"):
        return LocalLogStore(str(folder / "checkpoints"))
    s3: S3 = request.getfixturevalue("s3")
    return S3LogStore(f"s3a://{BUCKET}/{name}", service_of(s3))
