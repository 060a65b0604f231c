"""What the stores of a stream are called where their places are counted (`bulkheads`). Performs no I/O.

A name says what is really connected to, after the secret was read, and for whom: streams of another namespace, or with another
user, never take the places of this one, whatever server their secrets name. A server that is slow then has places for each of
them; that slow stores have half of the workers together bounds what it costs all others.
"""

from __future__ import annotations

from exactlyonce.ledger.postgres_connection import PostgresAddress
from exactlyonce.ledger.postgres_parameters import servers_of
from exactlyonce.source.kafka_properties import canonical_servers


def postgres_name(namespace: str, address: PostgresAddress) -> str:
    """Return the name of a Postgres server; its databases fail together."""
    servers = ",".join(servers_of(address.parameters))
    return f"Postgres {address.parameters['user']}@{servers} of namespace {namespace}"


def kafka_name(namespace: str, servers: str) -> str:
    """Return the name of a Kafka cluster."""
    return f"Kafka at {canonical_servers(servers)} of namespace {namespace}"
