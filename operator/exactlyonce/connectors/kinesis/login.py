"""The login of a stream, read in one way by the operator, drivers and their tasks. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.errors import SecretMissing

ID, KEY, TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"


@dataclass(frozen=True)
class KinesisAddress:
    """Where Kinesis is, and the login; without one, that of the process is used, such as a web identity."""

    region: str
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Region and endpoint in words."""
        return f"Kinesis in {self.region}" + (f" at {self.endpoint}" if self.endpoint else "")

    @property
    def has_login(self) -> bool:
        """Whether it holds a login; else the one of the process is used."""
        return self.access_key is not None


def address_of(region: str, endpoint: str | None, secret_name: str | None, secret: Mapping[str, str]) -> KinesisAddress:
    """Return the service with the login that its secret holds; only where no secret is named, the login is that of the process.

    Raises:
        SecretMissing: if the secret that the stream names holds no login, or one half of it.
    """
    if secret_name is None:
        return KinesisAddress(region, endpoint)
    login = {key: value.strip() for key, value in secret.items() if value.strip()}
    lacking = " and ".join(key for key in (ID, KEY) if key not in login)
    if lacking:
        raise SecretMissing(
            f"The secret {secret_name} that source.kinesis.secretRef names has no {lacking}; give it both {ID} and {KEY}."
        )
    return KinesisAddress(region, endpoint, login[ID], login[KEY], login.get(TOKEN))
