"""The clients of Kinesis of this process: one for all streams with the same service and login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exactlyonce.aws.clients import AnswerLimits, ClientsByAddress, make_client
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.wire_records import leave_records_as_they_are

_LIMITS = AnswerLimits(5.0, 10.0, 30.0, 32 * 1024 * 1024)
"""GetRecords answers with 10 MB of data at most, and as JSON with a third more."""


def kinesis_client(address: KinesisAddress) -> KinesisClient:
    """Return the client of this process for an address; a rotated login is another address."""
    return _CLIENTS.get(address)


def following_client(read: Callable[[], KinesisAddress]) -> KinesisClient:
    """Return a client that reads its address, with the login, again once that login is refused: it may have been rotated.

    Raises:
        SecretMissing: as `read`; a call does as well, where it has to read again.
    """
    return KinesisClient(read(), lambda: _connect(read()), is_renewable=True)


_CLIENTS: ClientsByAddress[KinesisAddress, KinesisClient] = ClientsByAddress(
    lambda address: KinesisClient(address, lambda: _connect(address))
)


def _connect(address: KinesisAddress) -> Any:
    client = make_client("kinesis", _LIMITS, address.login, region=address.region, endpoint=address.endpoint)
    return leave_records_as_they_are(client)
