"""Clients of S3 services: one for all streams with the same service and login, and which login a service is asked with."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from exactlyonce.aws.calls import AwsClient, Patience
from exactlyonce.aws.clients import AnswerLimits, AnswerTooLarge, ClientsByAddress, make_client
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, AwsLogin

_CONNECT_SECONDS = 5.0
_MOST_CERTIFICATES = 64

_ANSWER_SECONDS = 30.0
_SLOW = {"DeleteObjects": 60.0, "UploadPartCopy": 60.0, "CopyObject": 300.0, "CompleteMultipartUpload": 300.0}
"""Services begin to answer these and send spaces, or one result after another, for as long as they work on them.

A part has 64 MiB; an object that is archived is copied whole, up to 5 GB of it, and so are the parts of one put together.
"""
_MOST_ANSWER_BYTES = 8 << 20
"""Of a listing: 1,000 keys of 1,024 bytes, each of which is encoded as three, and some 500 bytes beside each."""
_MOST_ELEMENTS = 100_000
"""Of XML, each of which needs a hundred times the memory of its text; an object has at most some twenty."""


@dataclass(frozen=True)
class S3Service:
    """How a bucket is reached. `login` holds the keys of the secret; without any, what the process is given is used.

    `read_seconds` is the longest wait of a request for anything, and `tries` how often it may be sent: once, where one that
    arrives late would do harm.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    login: tuple[tuple[str, str], ...] = ()
    read_seconds: float = 10.0
    tries: int = 2

    @classmethod
    def of(
        cls,
        endpoint: str | None,
        region: str | None,
        *,
        path_style: bool,
        secret: Mapping[str, str],
        secret_name: str | None = None,
    ) -> S3Service:
        """Return the service that a resource and its secret name.

        Raises:
            SecretMissing: if the secret holds one half of a login.
        """
        values = {key: value.strip() for key, value in secret.items() if value.strip()}
        halves = [key for key in (ACCESS_KEY, SECRET_KEY) if key in values]
        if len(halves) == 1:
            raise SecretMissing(
                f"The secret {secret_name or 'for S3'} holds {halves[0]} alone, which is half a login to S3; give it both "
                f"{ACCESS_KEY} and {SECRET_KEY}."
            )
        return cls(endpoint, region, path_style, login=tuple(sorted(values.items())))

    @property
    def has_login(self) -> bool:
        """Whether the secret holds a login; one with a certificate alone has none."""
        return any(key == ACCESS_KEY for key, _ in self.login)

    @property
    def name(self) -> str:
        """What a person calls the service."""
        return self.endpoint or "Amazon S3"

    def __repr__(self) -> str:
        """Without the login."""
        return f"S3Service({self.name})"


def _client_of(service: S3Service) -> AwsClient:
    """Return a client that asks a service; it looks for the login of this process again once that is refused."""
    patience = Patience(_ANSWER_SECONDS, service.tries)
    return AwsClient(lambda: _connect(service), patience, is_renewable=not service.has_login, has_statuses=True)


def _connect(service: S3Service) -> Any:
    named = dict(service.login)
    login = AwsLogin(named[ACCESS_KEY], named[SECRET_KEY], named.get(SESSION_TOKEN)) if service.has_login else None
    certificate = named.get("ca.crt")
    limits = AnswerLimits(
        _CONNECT_SECONDS, service.read_seconds, _ANSWER_SECONDS, _MOST_ANSWER_BYTES, _require_few_elements, _SLOW
    )
    return make_client(
        "s3",
        limits,
        login,
        region=service.region or ("us-east-1" if service.endpoint else None),
        endpoint=service.endpoint,
        certificate=None if certificate is None else _file_of(certificate),
        s3={"addressing_style": "path" if service.path_style else "auto"},
        # Not every service that speaks the protocol knows the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


def _require_few_elements(content: bytes) -> None:
    if content.count(b"<") > 2 * _MOST_ELEMENTS:
        raise AnswerTooLarge(f"an answer with more than {_MOST_ELEMENTS} elements")


@lru_cache(maxsize=_MOST_CERTIFICATES)
def _file_of(certificate: str) -> str:
    """Keep a CA's certificate as a file of this process; the client reads certificates from files only."""
    name = hashlib.sha256(certificate.encode()).hexdigest()[:16]
    with tempfile.NamedTemporaryFile("w", prefix=f"exactlyonce-ca-{name}-", suffix=".pem", delete=False) as file:
        file.write(certificate)
    return file.name


CLIENTS: ClientsByAddress[S3Service, AwsClient] = ClientsByAddress(_client_of)
"""One for all streams with the same service and login: making one takes longer than a request."""
