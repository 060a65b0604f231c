"""`exactlyonce offsets NAME` and `exactlyonce offsets reset NAME`."""

from __future__ import annotations

from typing import Any

import click

from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.default_command import SHOW, ShownByDefault
from exactlyonce.cli.reset_offsets import reset
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster, looked_at


@click.command(
    SHOW,
    cls=Taught,
    examples=(
        ("offsets orders.yaml", "of a stream that runs on this machine"),
        ("offsets orders -n shop", "of a stream of the cluster"),
        ("offsets show reset -n shop", "of a stream that is named like a command"),
    ),
)
@TARGET
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def show(target: str, output: str, **options: Any) -> None:
    """Show where a stream stands in each partition: planned, checkpointed, landed, earliest, latest.

    Planned and checkpointed are what Spark's two logs say, landed what the ledger says; lag is latest minus landed, in
    records. For stream NAME of a cluster the ledger and the source are queried from here, with the logins in the
    stream's secrets, which your kubeconfig has to be allowed to get; planned and checkpointed are not shown. A ledger
    that is reached with an AWS login, and for which the stream names no secret, is queried with your own AWS credentials.
    """
    from exactlyonce.cli.offsets import offsets_of, show_offsets

    if is_of_a_cluster(target):
        from exactlyonce.cli.cluster_offsets import cluster_offsets

        rows = cluster_offsets(*cluster_of(options), target)
    else:
        rows = offsets_of(looked_at(target, options))
    show_offsets(rows, as_json=output == "json")


@click.group(
    cls=ShownByDefault,
    examples=(
        ("offsets orders.yaml", "of a stream that runs on this machine"),
        ("offsets orders -n shop", "of a stream of the cluster"),
        ("offsets reset orders -n shop --to earliest", "what a reset would skip and read again"),
    ),
)
def offsets() -> None:
    """Show where a stream stands in each partition, or reset where it continues.

    `exactlyonce offsets NAME` is short for `exactlyonce offsets show NAME`.
    """


offsets.add_command(show)
offsets.add_command(reset)
