"""Tokens with which a client logs in to Amazon MSK by IAM, each signed before the former one ends.

A token is the address of a request that is signed, and never sent, in base64.
Source: aws-msk-iam-sasl-signer-python of Amazon, `MSKAuthTokenProvider.generate_auth_token`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from exactlyonce.aws.signed_addresses import Signer
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
    signer = Signer(login_in(given, "secretRef"))

    def made(_config: str) -> Token:
        found = token(region, signer)
        if found is None:
            raise SecretMissing(
                "This process has no login to AWS of its own, such as a web identity; name a secret with one in secretRef."
            )
        return found

    return made


def token(region: str, signer: Signer) -> Token | None:
    """Return a token for the clusters of a region; None if there is no login."""
    url = f"https://kafka.{region}.amazonaws.com/"
    signed = signer.signed(url, "kafka-cluster:Connect", "kafka-cluster", region, _LIFE_SECONDS)
    if signed is None:
        return None
    return base64.urlsafe_b64encode(signed.url.encode()).decode().rstrip("="), signed.ends_at
