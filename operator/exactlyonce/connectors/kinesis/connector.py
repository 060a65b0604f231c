"""Kinesis as a source outside of Spark: where it is, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.client import KinesisAddress, KinesisClient, kinesis_client
from exactlyonce.connectors.kinesis.fleet import KinesisFleet
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.errors import SecretMissing

_ID, _KEY, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"


def kinesis_address(spec: KinesisSource, secret: Mapping[str, str]) -> KinesisAddress:
    """Return the service and the login of a stream; without a secret, the login is that of the process.

    Raises:
        SecretMissing: if the secret that the stream names holds no login, or one half of it.
    """
    login = {key: value.strip() for key, value in secret.items() if value.strip()}
    if spec.secret_ref is not None and not {_ID, _KEY} <= login.keys():
        lacking = " and ".join(key for key in (_ID, _KEY) if key not in login)
        raise SecretMissing(
            f"The secret {spec.secret_ref.name} that source.kinesis.secretRef names holds no {lacking}; give {_ID} and {_KEY}, "
            "or leave secretRef out to use the login of the process."
        )
    if spec.secret_ref is None:
        return KinesisAddress(spec.where, spec.endpoint)
    return KinesisAddress(spec.where, spec.endpoint, login[_ID], login[_KEY], login.get(_TOKEN))


@dataclass(frozen=True)
class KinesisPlace:
    """The service that a stream is at, and its login: a `SourceAddress`."""

    spec: KinesisSource
    reached: KinesisAddress = field(repr=False)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Region, service and login, which streams may share."""
        login = {
            "region": self.reached.region,
            "endpoint": self.reached.endpoint,
            _ID: self.reached.access_key,
            _KEY: self.reached.secret_key,
            _TOKEN: self.reached.session_token,
        }
        return tuple((name, value) for name, value in login.items() if value is not None)

    @property
    def shown(self) -> str:
        """The region, and the service where it is not Amazon's."""
        return f"Kinesis in {self.spec.address}"

    @property
    def has_login(self) -> bool:
        """Whether the stream's secret holds the login."""
        return self.reached.access_key is not None

    def store_name(self, namespace: str) -> str:
        """Return the name of the service."""
        return f"{self.shown} of namespace {namespace}"

    def client(self) -> KinesisClient:
        """Return a client; nothing is connected to yet."""
        return kinesis_client(self.reached)

    def open(self, client: KinesisClient | None = None) -> KinesisBounds:
        """Return the data stream."""
        return KinesisBounds(self.spec, client or self.client())


class KinesisConnector:
    """Kinesis."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> KinesisPlace:
        """Return the service of a stream and its login."""
        assert isinstance(spec, KinesisSource), "the registry gives each connector its own spec"
        return KinesisPlace(spec, kinesis_address(spec, secret))

    def fleet(self, key: tuple[tuple[str, str], ...]) -> KinesisFleet:
        """Return a service as the monitor asks it."""
        found = dict(key)
        address = KinesisAddress(
            found["region"], found.get("endpoint"), found.get(_ID), found.get(_KEY), found.get(_TOKEN)
        )
        return KinesisFleet(kinesis_client(address))


SOURCE = KinesisConnector()
