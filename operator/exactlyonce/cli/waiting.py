"""Asking something of a stream of a cluster, and waiting until the operator has done it."""

from __future__ import annotations

import time

import click

from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.control.wishes import (
    AlreadySo,
    Wish,
    Wished,
    attempt_of,
    outcome,
    phase_of,
    record_wish,
    waiting_words,
)
from exactlyonce.errors import Unreachable

EXIT_DONE, EXIT_NOT_DONE, EXIT_REFUSED = 0, 1, 2
_LOOK_SECONDS = 1.0

_ASKED = {
    Wish.SUSPEND: "is being suspended: its driver ends after the current batch",
    Wish.RESUME: "is being resumed: the next driver is started",
    Wish.RESTART: "is being restarted: its driver ends after the current batch, and another one follows",
}


def record_and_wait(cluster: ClusterReader, namespace: str, name: str, wish: Wish, wait_seconds: float | None) -> int:
    """Ask, say what was asked, and wait so long for its end where that is wanted; return the exit status."""
    try:
        wished = record_wish(cluster, namespace, name, wish)
        click.echo(f"{namespace}/{name} {_ASKED[wish]}.")
    except AlreadySo as so:
        if wait_seconds is None:
            raise
        click.echo(str(so), err=True)
        now = cluster.stream(namespace, name)
        wished = Wished(wish, now, attempt_of(now))
    return EXIT_DONE if wait_seconds is None else _wait(cluster, wished, wait_seconds)


def _wait(cluster: ClusterReader, wished: Wished, seconds: float) -> int:
    """Show each step of a stream until the wish is fulfilled or cannot be, but no longer than so many seconds."""
    namespace, name = (str(wished.stream["metadata"][key]) for key in ("namespace", "name"))
    deadline = time.monotonic() + seconds
    shown, stream = "", wished.stream
    while True:
        try:
            stream = cluster.stream(namespace, name)
            words = waiting_words(stream)
        except Unreachable as problem:
            words = f"{problem} It will be retried."
        ended = outcome(wished, stream)
        if ended is not None:
            click.echo(f"{namespace}/{name} is {phase_of(stream)}. {ended.words}".rstrip(), err=not ended.fulfilled)
            return EXIT_DONE if ended.fulfilled else EXIT_REFUSED
        if words != shown:
            click.echo(f"  {words}")
            shown = words
        if time.monotonic() > deadline:
            click.echo(
                f"{namespace}/{name} did not get there within {seconds:g} s and is {phase_of(stream)}; the operator "
                f"keeps working on it: `exactlyonce status {name} -n {namespace} --watch` shows how far it is.",
                err=True,
            )
            return EXIT_NOT_DONE
        time.sleep(min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0.0)))
