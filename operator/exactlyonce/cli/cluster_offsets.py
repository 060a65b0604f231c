"""`exactlyonce offsets NAME`: where a stream of a cluster stands, by its ledger and its source.

Both are asked from here, with the logins of the stream's own secrets as far as the person's kubeconfig may read them; a ledger
that is reached with an AWS login, and without one here, with the person's own AWS credentials. The checkpoint is not read: the
operator's and the drivers' identities may, and this command has neither.
"""

from __future__ import annotations

from functools import partial

import click

from exactlyonce.api.ledger import ledger_of
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.source import Source
from exactlyonce.assembly import Secrets, ledger_address, source_address
from exactlyonce.cli.offsets import Rows, rows_of
from exactlyonce.control.cluster_reader import ClusterReader, ReadRefused
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.positions.ranges import Positions
from exactlyonce.schema.model import SecretRef, field_name
from exactlyonce.source.connector import SourceAddress

_WITHOUT_CHECKPOINT = "Planned and checkpointed stand in the checkpoint, which is not read from here."


def cluster_offsets(cluster: ClusterReader, namespace: str, name: str) -> Rows:
    """Return a row for each partition; what cannot be asked is left open, and said.

    Raises:
        ExactlyOnceError: if the stream, its sink's secret or its ledger cannot be read.
    """
    stream = parse_stream(cluster.stream(namespace, name), f"{namespace}/{name}")
    landed = _landed(cluster, stream)
    click.echo(_WITHOUT_CHECKPOINT, err=True)
    try:
        source = source_with_own_login(
            stream.spec.source,
            partial(cluster_secret, cluster, stream, f"spec.source.{field_name(stream.spec.source.connector)}"),
        )
        return rows_of(stream.spec.source.spec, landed, source.open().view(frozenset(landed)).bounds)
    except ExactlyOnceError as problem:
        click.echo(f"Earliest, latest and lag are not known: {problem}", err=True)
        return rows_of(stream.spec.source.spec, landed, {})


def source_with_own_login(source: Source, secrets: Secrets) -> SourceAddress:
    """Return where the source of a stream is, with the login in the stream's secret; a person's own is for nothing it names.

    Raises:
        ExactlyOnceError: if the stream has none, or its secret cannot be read.
    """
    address = source_address(source, secrets)
    if address.reached_by_process:
        raise ReadRefused(
            f"{address.shown} is not queried with your own login, and spec.source.{field_name(source.connector)}.secretRef "
            "names no login; `exactlyonce status` shows the lag that the operator has measured."
        )
    return address


def cluster_ledger(cluster: ClusterReader, stream: Stream) -> OpenLedger:
    """Return the ledger of a stream of a cluster, opened with the login in the stream's secret, or with the person's own.

    Raises:
        ExactlyOnceError: if the secret cannot be read.
    """
    try:
        address = ledger_address(stream.spec, partial(cluster_secret, cluster, stream, ledger_of(stream.spec).named_at))
    except ReadRefused as refused:
        metadata = stream.metadata
        raise ReadRefused(
            f"{refused} The ledger is queried with its login; `exactlyonce status {metadata.name} -n {metadata.namespace}` "
            "shows the lag without it."
        ) from None
    return address.open()


def _landed(cluster: ClusterReader, stream: Stream) -> Positions:
    view = cluster_ledger(cluster, stream).view(stream.stream_id)
    return Positions() if view is None else view.landed.positions


def cluster_secret(cluster: ClusterReader, stream: Stream, where: str, reference: SecretRef | None) -> dict[str, str]:
    """Return the secret that the resource names at `where`; without a reference there is none."""
    return {} if reference is None else cluster.secret(stream.metadata.namespace, reference.name, f"{where}.secretRef")
