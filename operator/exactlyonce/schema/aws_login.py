"""The login to a service of Amazon's that a secret holds. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from exactlyonce.errors import SecretMissing

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
LOGIN_KEYS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
"""The keys read from a secret."""

SET_ASIDE = "EXACTLYONCE_SET_ASIDE"
"""The variable of a process whose JVM has another login in its environment, and how those that hold its own begin then."""


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


def set_aside(environment: MutableMapping[str, str]) -> None:
    """Keep the login in the environment of a process under other names, where another one is about to take its place."""
    if SET_ASIDE not in environment:
        own = {f"{SET_ASIDE}_{key}": environment[key] for key in LOGIN_KEYS if key in environment}
        environment.update({SET_ASIDE: "yes", **own})


def login_set_aside(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the login that was set aside, which may be empty; None where the environment has the process's own."""
    if SET_ASIDE not in environment:
        return None
    found = {key: environment.get(f"{SET_ASIDE}_{key}", "").strip() for key in LOGIN_KEYS}
    return {key: value for key, value in found.items() if value}


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
