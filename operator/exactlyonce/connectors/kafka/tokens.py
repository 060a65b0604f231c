"""Tokens with which a client logs in to Amazon MSK by IAM, each signed before the former one ends.

A token is the address of a request that is signed, and never sent, in base64.
Source: aws-msk-iam-sasl-signer-python of Amazon, `MSKAuthTokenProvider.generate_auth_token`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from exactlyonce.connectors.kafka.client_properties import AWS_MSK_IAM, MECHANISM, OAUTHBEARER
from exactlyonce.connectors.kafka.properties import MSK_REGION
from exactlyonce.errors import SecretMissing
from exactlyonce.schema.aws_login import LOGIN_KEYS, login_in

_LIFE_SECONDS = 900

Token = tuple[str, float]
"""A token, and the moment (time.time) at which it ends."""


def with_tokens(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties for a client of librdkafka: a login by IAM becomes a call that makes tokens.

    Without a key in the properties, the login is that of the process, such as a web identity.
    """
    if properties.get(MECHANISM) != AWS_MSK_IAM:
        return dict(properties)
    given = {key: value for key, value in properties.items() if key in (MSK_REGION, *LOGIN_KEYS)}
    others = {key: value for key, value in properties.items() if key not in given}
    return {**others, MECHANISM: OAUTHBEARER, "oauth_cb": _maker(given[MSK_REGION], given)}


def _maker(region: str, given: Mapping[str, str]) -> Callable[[str], Token]:
    from botocore.credentials import Credentials
    from botocore.session import Session

    login = login_in(given, "secretRef")
    own = None if login is not None else Session().get_credentials()  # which renews itself

    def made(_config: str) -> Token:
        if login is not None:
            return token(region, Credentials(login.access_key, login.secret_key, login.session_token))
        if own is None:
            raise SecretMissing(
                "This process has no login to AWS of its own, such as a web identity; name a secret with one in secretRef."
            )
        return token(region, own.get_frozen_credentials())

    return made


def token(region: str, credentials: Any) -> Token:
    """Return a token for the clusters of a region, signed with these credentials."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    asked = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"})
    SigV4QueryAuth(credentials, "kafka-cluster", region, expires=_LIFE_SECONDS).add_auth(asked)
    signed_at = datetime.strptime(parse_qs(urlsplit(asked.url).query)["X-Amz-Date"][0], "%Y%m%dT%H%M%S%z")
    asked.params = {"User-Agent": "exactlyonce"}
    text = base64.urlsafe_b64encode(asked.prepare().url.encode()).decode().rstrip("=")
    return text, signed_at.timestamp() + _LIFE_SECONDS
