"""The commands for streams of a cluster; each acts with the rights of the person's own kubeconfig."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from exactlyonce.cli.commands import Taught
from exactlyonce.cli.completion import namespaces, stream_names
from exactlyonce.schema.model import DNS_LABEL, parse_duration

OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")
_CONTEXT = click.option("--context", help="A context of the kubeconfig; the default is its current one.")
_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig; the default is what kubectl uses."
)
_OPTIONS = (
    click.option(
        "-n", "--namespace", help="The stream's namespace; the default is the context's.", shell_complete=namespaces
    ),
    _CONTEXT,
    _KUBECONFIG,
)
_NAMESPACE_MAX_LENGTH = 63
_NAME = click.argument("name", shell_complete=stream_names)


def of_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which cluster and namespace, as kubectl has them."""
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def _namespace(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if re.fullmatch(DNS_LABEL, text) is None or len(text) > _NAMESPACE_MAX_LENGTH:
        raise click.BadParameter(f"{text!r} is not a valid namespace name.")
    return text


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


TIMEOUT = click.option(
    "--timeout", default="10m", show_default=True, callback=_seconds, help="How long to wait, such as 90s or 1h."
)
_WAIT = (
    click.option("--wait", is_flag=True, help="Wait until the operator has done it, and show its steps."),
    TIMEOUT,
)


@click.command(
    cls=Taught,
    examples=(
        ("status", "the streams of the context's namespace"),
        ("status -A --watch", "every stream of the cluster, live"),
        ("status orders -n shop", "all about one stream"),
        ("status -A -o json", "for a program, such as jq"),
    ),
)
@click.argument("name", required=False, shell_complete=stream_names)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="The streams of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="Show them live, until Ctrl-C.")
@OUTPUT
@of_a_cluster
def status(
    name: str | None,
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    output: str,
    context: str | None,
    kubeconfig: Path | None,
) -> None:
    """Show the streams of a cluster, or everything about one: phase, lag, driver, verdict, events.

    LAG-RECORDS counts the records that have not landed (of a folder, the files, while no driver runs), BEHIND is the age of the
    oldest of them. Both are measured from the source and the ledger, so that they are right while no driver runs; a `?` says
    that one of the two does not answer, and what is shown is what was last known, or that there may be more files. Columns that
    do not fit on the screen are left out. Nothing is changed.

    Exit status 0, 2 when a stream that is shown has halted, 1 when the cluster could not be queried.
    """
    from exactlyonce.cli.consoles import console_of_output
    from exactlyonce.cli.status import show_status
    from exactlyonce.control.cluster_reader import ClusterReader

    if name and everywhere:
        raise click.UsageError("NAME is one stream of one namespace; leave -A out.")
    cluster = ClusterReader.connect(kubeconfig, context)
    wanted = None if everywhere else namespace or cluster.namespace
    sys.exit(show_status(cluster, name, wanted, watch=watch, as_json=output == "json", console=console_of_output()))


@click.command(
    cls=Taught,
    examples=(
        ("logs orders -n shop", "what the latest driver has written"),
        ("logs orders -n shop --follow --tail 100", "its last lines, and whatever comes"),
        ("logs orders -n shop --previous", "the driver before it, such as one that failed"),
        ("logs orders -n shop --attempt 16", "the driver of one attempt"),
        ("logs orders -n shop --container reconcile", "what was decided before it, with a checkpoint on a claim"),
    ),
)
@_NAME
@click.option("--attempt", type=click.IntRange(1), help="The driver of this attempt; the default is the latest.")
@click.option("--previous", is_flag=True, help="The driver before the latest.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing what it writes, until it ends or Ctrl-C.")
@click.option("--tail", type=click.IntRange(0), help="The number of last lines to print.")
@click.option(
    "--container",
    type=click.Choice(["driver", "reconcile"]),
    default="driver",
    show_default=True,
    help="The driver, or the init container that decides where the checkpoint is on a claim.",
)
@of_a_cluster
def logs(
    name: str,
    attempt: int | None,
    previous: bool,
    follow: bool,
    tail: int | None,
    container: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: Path | None,
) -> None:
    """Print what the driver of stream NAME has written: of the latest attempt, or of another one whose pod is still there.

    `spec.history` says how many pods of ended drivers are kept. It takes the rights to list pods and to get pods/log.
    """
    from exactlyonce.cli.logs import show_logs
    from exactlyonce.control.cluster_reader import ClusterReader

    if previous and attempt is not None:
        raise click.UsageError("--previous and --attempt each choose a driver; give one of them.")
    cluster = ClusterReader.connect(kubeconfig, context)
    show_logs(
        cluster,
        namespace or cluster.namespace,
        name,
        attempt=attempt,
        previous=previous,
        container=container,
        follow=follow,
        tail=tail,
        output=sys.stdout.buffer,
    )


def _wish(wished: str, told: str, examples: tuple[tuple[str, str], ...]) -> click.Command:
    """Return a command that asks something of a stream."""

    def asked(
        name: str,
        wait: bool,
        timeout: float,
        namespace: str | None,
        context: str | None,
        kubeconfig: Path | None,
    ) -> None:
        from exactlyonce.cli.waiting import record_and_wait
        from exactlyonce.control.cluster_reader import ClusterReader
        from exactlyonce.control.wishes import Wish

        cluster = ClusterReader.connect(kubeconfig, context)
        sys.exit(
            record_and_wait(cluster, namespace or cluster.namespace, name, Wish(wished), timeout if wait else None)
        )

    asked.__doc__ = told
    with_options = functools.reduce(lambda made, option: option(made), (*reversed(_WAIT), _NAME), of_a_cluster(asked))
    return click.command(wished, cls=Taught, examples=examples)(with_options)


_EXIT = """

    Exit status 0; with --wait, 1 when it was not done in time and 2 when the stream has halted or its spec is invalid."""

suspend = _wish(
    "suspend",
    f"""Suspend stream NAME: its driver ends after the current batch, and no other is started.

    It sets spec.suspend to true. What is in a Git repository or a chart has to say so too, or its next sync undoes it.{_EXIT}
    """,
    (
        ("suspend orders -n shop", "ask for it"),
        ("suspend orders -n shop --wait", "and wait until no driver runs"),
    ),
)
resume = _wish(
    "resume",
    f"""Resume stream NAME from where it has landed.

    It sets spec.suspend to false; the operator reconciles and starts a driver.{_EXIT}
    """,
    (
        ("resume orders -n shop", "ask for it"),
        ("resume orders -n shop --wait --timeout 3m", "and wait for its driver, three minutes at most"),
    ),
)
restart = _wish(
    "restart",
    f"""Start another driver for stream NAME: the one that runs ends after the current batch.

    It raises spec.restartNonce. A stream that has halted or is waiting after failures is tried again at once; nothing is lost
    or doubled by it.{_EXIT}
    """,
    (
        ("restart orders -n shop", "ask for it"),
        ("restart orders -n shop --wait", "and wait until the next driver runs"),
    ),
)


@click.command(
    cls=Taught,
    examples=(
        ("init shop", "the account that the chart's own values name"),
        ("init shop --service-account spark", "where drivers.serviceAccount.name of the chart is another"),
        ("init shop --no-network-policy", "where NetworkPolicies of your own say who may connect to drivers"),
    ),
)
@click.argument("namespace", callback=_namespace, shell_complete=namespaces)
@click.option(
    "--service-account", "account", default="exactlyonce-driver", show_default=True, help="The name of the account."
)
@click.option(
    "--network-policy/--no-network-policy",
    default=True,
    show_default=True,
    help="Whether to make the NetworkPolicy of drivers and executors too.",
)
@_CONTEXT
@_KUBECONFIG
def init(namespace: str, account: str, context: str | None, kubeconfig: Path | None, *, network_policy: bool) -> None:
    """Make the service account of drivers in NAMESPACE, with a role that lets it handle the pods of executors there.

    A NetworkPolicy lets nobody but drivers and executors of the namespace connect to them, except to a driver's metrics. The
    chart does the same for the namespaces that its values name. You can repeat this at any time. You need the rights to patch
    and create serviceaccounts, roles, rolebindings and networkpolicies; the role admin of the namespace has them.
    """
    from exactlyonce.control.cluster_reader import ClusterReader
    from exactlyonce.control.driver_accounts import make_driver_account

    make_driver_account(ClusterReader.connect(kubeconfig, context), namespace, account, network_policy=network_policy)
    click.echo(f"The drivers of namespace {namespace} run as {account}. The operator has to watch the namespace too.")


CLUSTER_COMMANDS = (status, logs, suspend, resume, restart, init)
