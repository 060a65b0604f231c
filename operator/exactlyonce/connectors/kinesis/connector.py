"""Kinesis as a source outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.clients import kinesis_client
from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, dynamo_db_client
from exactlyonce.connectors.kinesis.fleet import KinesisFleet
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable, seen_of
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.login import KinesisAddress, address_of
from exactlyonce.connectors.kinesis.recovered_start import start_behind
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.positions.ranges import Partition
from exactlyonce.schema.aws_login import login_in
from exactlyonce.schema.places import TABLE_PREFIX, NamedPlace
from exactlyonce.source.connector import GoesOn


def kinesis_address(spec: KinesisSource, secret: Mapping[str, str]) -> KinesisAddress:
    """Return the service and the login of a stream; without a secret, the login is that of the process.

    Raises:
        SecretMissing: if the secret that the stream names holds no login, or one half of it.
    """
    return address_of(spec.where, spec.endpoint, None if spec.secret_ref is None else spec.secret_ref.name, secret)


@dataclass(frozen=True)
class KinesisPlace:
    """The service that a stream is at, and its login: a `SourceAddress`."""

    spec: KinesisSource
    reached: KinesisAddress = field(repr=False)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Region, service, login and account, which streams may share.

        Streams of two accounts may have one name, so those that an ARN names are asked beside those of their own account.
        """
        named = {
            "region": self.reached.region,
            "endpoint": self.reached.endpoint,
            **(self.reached.login.as_secret() if self.reached.login is not None else {}),
            "account": self.spec.account,
        }
        return tuple((name, value) for name, value in named.items() if value is not None)

    @property
    def shown(self) -> str:
        """The region, and the service where it is not Amazon's."""
        return f"Kinesis in {self.spec.address}"

    @property
    def reached_by_process(self) -> tuple[NamedPlace, ...]:
        """The data stream and its lease table, unless the stream's secret holds the login.

        A data stream that is not named by its ARN is in no form that can be allowed.
        """
        if self.reached.login is not None:
            return ()
        stream, table = NamedPlace(self.spec.named, self.spec.endpoint), self.spec.lease_table
        if table is None:
            return (stream,)
        return stream, NamedPlace(f"{TABLE_PREFIX}{table.region or self.spec.where}/{table.table_name}", table.endpoint)

    def store_name(self, namespace: str) -> str:
        """Return the name of the service."""
        return f"{self.shown} of namespace {namespace}"

    def client(self) -> KinesisClient:
        """Return a client; nothing is connected to yet."""
        return kinesis_client(self.reached)

    def start_behind(self, last: Mapping[Partition, int]) -> GoesOn:
        """Ask Kinesis for the records that the last rows are from, and whether they have more user records."""
        return start_behind(self.client(), self.spec, last)

    def open(self, client: KinesisClient | None = None) -> KinesisBounds:
        """Return the data stream, with its lease table if it names one."""
        return KinesisBounds(self.spec, client or self.client(), self._leases())

    def _leases(self) -> KnownTable | None:
        """Return the lease table, reached with the login of the stream."""
        named = self.spec.lease_table
        if named is None:
            return None
        address = DynamoDbAddress(named.region or self.spec.where, named.endpoint, self.reached.login)
        table = LeaseTable(dynamo_db_client(address), named.table_name)
        return KnownTable(table, seen_of((address, named.table_name, self.spec.named)))


class KinesisConnector:
    """Kinesis."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> KinesisPlace:
        """Return the service of a stream and its login."""
        assert isinstance(spec, KinesisSource), "the registry gives each connector its own spec"
        return KinesisPlace(spec, kinesis_address(spec, secret))

    def fleet(self, key: tuple[tuple[str, str], ...]) -> KinesisFleet:
        """Return a service as the monitor asks it."""
        found = dict(key)
        login = login_in(found, "source.kinesis.secretRef")
        return KinesisFleet(kinesis_client(KinesisAddress(found["region"], found.get("endpoint"), login)))


SOURCE = KinesisConnector()
