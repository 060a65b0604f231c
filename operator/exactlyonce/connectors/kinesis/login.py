"""The login of a stream, read in one way by the operator, drivers and their tasks. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.aws.clients import ServiceAddress
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.aws_login import ACCESS_KEY, SECRET_KEY, login_in

_NAMED_AT = "source.kinesis.secretRef"


class KinesisAddress(ServiceAddress):
    """Where Kinesis is."""

    service = "Kinesis"


def address_of(region: str, endpoint: str | None, secret_name: str | None, secret: Mapping[str, str]) -> KinesisAddress:
    """Return the service with the login that its secret holds; only where no secret is named, the login is that of the process.

    Raises:
        SecretMissing: if the secret that the stream names holds no login, or one half of it.
    """
    if secret_name is None:
        return KinesisAddress(region, endpoint)
    lacking = " and ".join(key for key in (ACCESS_KEY, SECRET_KEY) if not secret.get(key, "").strip())
    if lacking:
        raise SecretMissing(
            f"The secret {secret_name} that {_NAMED_AT} names has no {lacking}; give it both {ACCESS_KEY} and {SECRET_KEY}."
        )
    return KinesisAddress(region, endpoint, login_in(secret, _NAMED_AT))
