"""`exactlyonce status`: streams of a cluster, once or live."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from exactlyonce.api.status import Phase
from exactlyonce.cli.stream_view import Resource, detail, phase_of, table
from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.errors import Unreachable

EXIT_WELL, EXIT_HALTED = 0, 2
_REFRESH_SECONDS = 2.0


def show_status(
    cluster: ClusterReader, name: str | None, namespace: str | None, *, watch: bool, as_json: bool, console: Console
) -> int:
    """Print one stream or all of a namespace (None: of all), once or until Ctrl-C, and return the exit status."""

    def read() -> list[Resource]:
        return [cluster.stream(namespace or cluster.namespace, name)] if name else [*cluster.streams(namespace)]

    def drawn(streams: Sequence[Resource]) -> RenderableType:
        now = datetime.now(UTC)
        if name:
            return detail(streams[0], cluster.events(streams[0]), now)
        if not streams:
            return Text(_nothing(namespace))
        return table(streams, now, with_namespace=namespace is None, width=console.width)

    if not watch:
        streams = read()
        click.echo(json.dumps(as_data(streams, one=name is not None), indent=2)) if as_json else console.print(
            drawn(streams)
        )
        return EXIT_HALTED if any(phase_of(it) == Phase.HALTED for it in streams) else EXIT_WELL
    try:
        _watch_json(read, one=name is not None) if as_json else _watch(read, drawn, console)
    except KeyboardInterrupt:
        return EXIT_WELL
    raise AssertionError("a watch ends by Ctrl-C or by an error")


def as_data(found: Sequence[Resource], *, one: bool) -> object:
    """Return resources for a program: as `kubectl get -o json` would, without what the API server keeps for itself."""
    plain = [
        {**it, "metadata": {key: value for key, value in it["metadata"].items() if key != "managedFields"}}
        for it in found
    ]
    return plain[0] if one else plain


def _watch(
    read: Callable[[], list[Resource]], drawn: Callable[[Sequence[Resource]], RenderableType], console: Console
) -> None:
    """Draw again and again; an API server that is silent for a while leaves what was last seen, and says so."""
    shown: RenderableType = Text("")
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        first = True
        while True:
            try:
                shown = drawn(read())
                live.update(shown, refresh=True)
            except Unreachable as problem:
                if first:
                    raise
                live.update(Group(shown, Text(f"\n{problem} It will be retried.", style="yellow")), refresh=True)
            first = False
            time.sleep(_REFRESH_SECONDS)


def _watch_json(read: Callable[[], list[Resource]], *, one: bool) -> None:
    """Print a line of JSON whenever something has changed."""
    before = None
    while True:
        line = json.dumps(as_data(read(), one=one))
        if line != before:
            click.echo(line)
        before = line
        time.sleep(_REFRESH_SECONDS)


def _nothing(namespace: str | None) -> str:
    where = "in this cluster" if namespace is None else f"in namespace {namespace}; -A shows all"
    return f"There is no ExactlyOnceStream {where}."
