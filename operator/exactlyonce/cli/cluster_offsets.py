"""`exactlyonce offsets NAME`: where a stream of a cluster stands, by its ledger and its source.

Both are asked from here, with the logins of the stream's own secrets as far as the person's kubeconfig may read them. The
checkpoint is not read: the operator's and the drivers' identities may, and this command has neither.
"""

from __future__ import annotations

import click

from exactlyonce.api.model import SecretRef
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.cli.offsets import Rows, rows_of
from exactlyonce.control.looking import ClusterLook, LookRefused
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.postgres import PostgresLedger
from exactlyonce.ledger.postgres_connection import PostgresAddress
from exactlyonce.offsets import Positions
from exactlyonce.source.kafka import KafkaBounds

_WITHOUT_CHECKPOINT = "Planned and checkpointed stand in the checkpoint, which is not read from here."


def cluster_offsets(look: ClusterLook, namespace: str, name: str) -> Rows:
    """Return a row for each partition; what cannot be asked is left open, and said.

    Raises:
        ExactlyOnceError: if the stream, its sink's secret or its ledger cannot be read.
    """
    stream = parse_stream(look.stream(namespace, name), f"{namespace}/{name}")
    landed = _landed(look, stream)
    click.echo(_WITHOUT_CHECKPOINT, err=True)
    try:
        source = stream.spec.source.kafka
        secret = _secret(look, stream, source.secret_ref, "spec.source.kafka.secretRef")
        return rows_of(landed, KafkaBounds(source, secret).view(frozenset(landed)).bounds)
    except ExactlyOnceError as problem:
        click.echo(f"Earliest, latest and lag are not known: {problem}", err=True)
        return rows_of(landed, {})


def _landed(look: ClusterLook, stream: Stream) -> Positions:
    sink = stream.spec.sink.postgres
    try:
        secret = _secret(look, stream, sink.secret_ref, "spec.sink.postgres.secretRef")
    except LookRefused as refused:
        metadata = stream.metadata
        raise LookRefused(
            f"{refused} The ledger is asked with its login; `exactlyonce status {metadata.name} -n {metadata.namespace}` "
            "shows the lag without it."
        ) from None
    view = PostgresLedger(PostgresAddress.from_secret(sink.secret_ref.name, secret), sink.ledger_schema).look(
        stream.stream_id
    )
    return Positions() if view is None else view.landed.positions


def _secret(look: ClusterLook, stream: Stream, reference: SecretRef | None, field: str) -> dict[str, str]:
    return {} if reference is None else look.secret(stream.metadata.namespace, reference.name, field)
