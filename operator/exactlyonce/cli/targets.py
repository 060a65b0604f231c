"""What a command is about: a stream of a FILE, or stream NAME of a cluster; the options that say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from exactlyonce.cli.completion import files_and_streams
from exactlyonce.cli.local_stream import LocalStream, choose_stream, default_state_root, open_stream
from exactlyonce.schema.model import DNS_LABEL

if TYPE_CHECKING:
    from exactlyonce.control.cluster_reader import ClusterReader  # the Kubernetes client takes half a second to import

FILE = click.argument("file", type=click.Path(path_type=Path))
NAME = click.option("--name", help="Which stream, where the file holds several.")
STATE = click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=default_state_root,
    show_default="~/.local/state/exactlyonce",
    help="The folder that keeps status and logs of local streams.",
)
SECRETS = click.option(
    "--secrets",
    type=click.Path(path_type=Path),
    default=Path("secrets"),
    show_default=True,
    envvar="EXACTLYONCE_SECRETS",
    help="The folder of secrets: one folder per secret, one file per key, as Kubernetes mounts them.",
)
TARGET = click.argument("target", metavar="FILE|NAME", shell_complete=files_and_streams)


def is_of_a_cluster(target: str) -> bool:
    """Whether a stream of a cluster is meant: so it is said, or it is not a file of this machine and could be such a name.

    Raises:
        UsageError: if options of both are given.
    """
    given = click.get_current_context().get_parameter_source
    of_file, of_cluster = (
        [f"--{name}" for name in names if given(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)]
        for names in (("name", "state"), ("namespace", "context", "kubeconfig"))
    )
    is_name = re.fullmatch(DNS_LABEL, target) is not None and not Path(target).exists()
    if of_file and (of_cluster or is_name):
        raise click.UsageError(
            f"{', '.join(of_file)} belongs to a FILE, and {target} is a stream of a cluster; leave it out."
        )
    return bool(of_cluster) or is_name


def cluster_of(options: Mapping[str, Any]) -> tuple[ClusterReader, str]:
    """Return the cluster and the namespace that the options name."""
    from exactlyonce.control.cluster_reader import ClusterReader

    cluster = ClusterReader.connect(options["kubeconfig"], options["context"])
    return cluster, options["namespace"] or cluster.namespace


def looked_at(target: str, options: Mapping[str, Any]) -> LocalStream:
    """Return the stream of a file, to be looked at only."""
    return open_stream(
        choose_stream(Path(target), options["name"]), options["state"], options["secrets"], read_only=True
    )
