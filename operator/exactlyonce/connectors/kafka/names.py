"""Names that a source and a sink share: of topics, and of the keys of a secret. Performs no I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.schema.aws_login import LOGIN_KEYS
from exactlyonce.schema.constraints import matches

TopicName = Annotated[
    str,
    Field(min_length=1, max_length=249),
    matches("[a-zA-Z0-9._-]*", "write a topic's name: letters, digits, dots, underscores and hyphens"),
]

KAFKA_SECRET_KEYS = (
    "username", "password", "clientId", "clientSecret", "ca.crt", "oauth.ca.crt", "tls.crt", "tls.key", *LOGIN_KEYS,
)  # fmt: skip
"""The keys read from the secret of a source or a sink: a SASL login (username and password; clientId and clientSecret of
OAUTHBEARER; AWS' own of AWS_MSK_IAM), the CAs of the brokers and of the token endpoint, and a client certificate, as PEM."""

KAFKAS_OWN = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that a pattern never selects. Source: org.apache.kafka.common.internals.Topic, INTERNAL_TOPICS."""
