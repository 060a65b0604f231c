"""The login to a service of Amazon's that a secret holds. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exactlyonce.errors import SecretMissing

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
LOGIN_KEYS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
"""The keys read from a secret."""


@dataclass(frozen=True, slots=True)
class AwsLogin:
    """A login; its text shows nothing of it."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    def as_secret(self) -> dict[str, str]:
        """Return it as a secret holds it, for `login_in`."""
        token = {} if self.session_token is None else {SESSION_TOKEN: self.session_token}
        return {ACCESS_KEY: self.access_key, SECRET_KEY: self.secret_key, **token}


def login_in(secret: Mapping[str, str], where: str) -> AwsLogin | None:
    """Return the login that a secret holds, or None; `where` says in an error what names the secret.

    Raises:
        SecretMissing: if it holds one half of a login.
    """
    found = {key: value.strip() for key, value in secret.items() if value.strip()}
    halves = [key for key in (ACCESS_KEY, SECRET_KEY) if key in found]
    if len(halves) == 1:
        raise SecretMissing(
            f"The secret that {where} names holds {halves[0]} alone, which is half a login; give it both {ACCESS_KEY} and "
            f"{SECRET_KEY}."
        )
    return AwsLogin(found[ACCESS_KEY], found[SECRET_KEY], found.get(SESSION_TOKEN)) if halves else None
