"""Clients of S3 services: one for all streams with the same service and login, and which login a service is asked with."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import botocore.config

from exactlyonce.aws_clients import AnswerTooLarge, ClientsByAddress, bound_answers, new_client
from exactlyonce.errors import SecretMissing

_CONNECT_SECONDS = 5
_MOST_CERTIFICATES = 64

_QUICK = ("ListObjectsV2", "GetObject", "PutObject", "CreateMultipartUpload", "UploadPart", "AbortMultipartUpload")
_SLOW = ("DeleteObjects", "CopyObject", "UploadPartCopy", "CompleteMultipartUpload")
"""Services begin to answer these and send spaces, or one result after another, for as long as they work on them."""
_ANSWER_SECONDS = dict.fromkeys(_QUICK, 30.0) | dict.fromkeys(_SLOW, 900.0)
"""Of each answer with a body, by its operation: the operator lists, writes, copies and deletes at servers of tenants."""
_MOST_ANSWER_BYTES = 8 << 20
"""Of a listing: 1,000 keys of 1,024 bytes, each of which is encoded as three, and some 500 bytes beside each."""
_MOST_ELEMENTS = 100_000
"""Of XML, each of which needs a hundred times the memory of its text; an object has at most some twenty."""


@dataclass(frozen=True)
class S3Service:
    """How a bucket is reached. `login` holds the keys of the secret; without any, what the process is given is used.

    `tries` is how often a request may be sent: once, where one that arrives late would do harm.
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
        halves = [key for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if key in values]
        if len(halves) == 1:
            raise SecretMissing(
                f"The secret {secret_name or 'for S3'} holds {halves[0]} alone, which is half a login to S3; give it both "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        return cls(endpoint, region, path_style, login=tuple(sorted(values.items())))

    @property
    def has_login(self) -> bool:
        """Whether the secret holds a login; one with a certificate alone has none."""
        return any(key == "AWS_ACCESS_KEY_ID" for key, _ in self.login)

    def __repr__(self) -> str:
        """Without the login."""
        return f"S3Service({self.endpoint or 'Amazon S3'})"


class S3Clients:
    """The clients of services; making one takes longer than a request, and it serves several threads.

    With a secret, its login is part of what a client is known by, so that a rotated one has another client. Without one, the
    AWS library looks for the login of this process and keeps what it found, or that it found none, in a session. Such a
    client has a session of its own and is forgotten when its login is refused or there was none: the next request looks again.
    """

    def __init__(self) -> None:
        self._made: ClientsByAddress[S3Service] = ClientsByAddress(_made_client)

    def get(self, service: S3Service) -> Any:
        """Return the client of a service."""
        return self._made.get(service)

    def forget_login(self, service: S3Service) -> None:
        """Let the next request look again for the login of this process, where the service has no other."""
        if not service.has_login:
            self._made.forget(service)


def _made_client(service: S3Service) -> Any:
    login = dict(service.login)
    config = botocore.config.Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=service.read_seconds,
        retries={"mode": "standard", "total_max_attempts": service.tries},
        s3={"addressing_style": "path" if service.path_style else "auto"},
        # Not every service that speaks the protocol knows the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    certificate = login.get("ca.crt")
    client = new_client(
        "s3",
        has_login=service.has_login,
        endpoint_url=service.endpoint,
        region_name=service.region or ("us-east-1" if service.endpoint else None),
        aws_access_key_id=login.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=login.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=login.get("AWS_SESSION_TOKEN") if service.has_login else None,
        verify=None if certificate is None else _file_of(certificate),
        config=config,
    )
    for operation, seconds in _ANSWER_SECONDS.items():
        bound_answers(client, f"s3.{operation}", _MOST_ANSWER_BYTES, seconds, _require_few_elements)
    return client


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


CLIENTS = S3Clients()
