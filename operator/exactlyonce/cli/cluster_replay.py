"""`exactlyonce replay NAME`: create a StreamReplay on the cluster and follow it; without --yes, only show it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
import yaml

from exactlyonce.api.replay import require_replayable
from exactlyonce.api.resource import API_VERSION, Stream, parse_stream
from exactlyonce.api.stream_replay import REPLAY_KIND, parse_replay
from exactlyonce.api.stream_replay_status import ReplayPhase
from exactlyonce.bounded_text import printable
from exactlyonce.cli.asked_replay import AskedReplay
from exactlyonce.cli.given_ranges import Moments, given_ranges, named_spans, replayed_by
from exactlyonce.cli.replayed_transform import with_transform
from exactlyonce.cli.status import as_data
from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.control.replay_reader import create_replay, read_replay
from exactlyonce.errors import Unreachable

EXIT_LANDED, EXIT_NOT_LANDED = 0, 1
_LOOK_SECONDS = 1.0
_MOST_OF_NAME = 28
"""Characters of the stream's name in that of a replay, which is the name of pods, too."""


@dataclass(frozen=True)
class Following:
    """Whether a replay is created, for how many seconds it is followed, None for not at all, and how it is printed."""

    creates: bool
    wait_seconds: float | None
    as_json: bool


def run_cluster_replay(
    cluster: ClusterReader, namespace: str, name: str, asked: AskedReplay, following: Following
) -> int:
    """Create a StreamReplay of a stream, or only show it, and return the exit status.

    Raises:
        ReplayRefused, ResourceInvalid, RangesUnreadable, TransformUnreadable: if what is asked for cannot be done.
        ReadRefused, ClusterSilent: if the cluster refuses it, or does not answer.
    """
    found = parse_stream(cluster.stream(namespace, name), f"{namespace}/{name}")
    stream = with_transform(found, asked.transform)
    require_replayable(
        stream.spec, stream.stream_id, replayed_by(asked.kind, asked.by_timestamp, asked.into, asked.given)
    )
    created = create_replay(cluster, replay_of(stream, asked, datetime.now(UTC)), dry_run=not following.creates)
    if not following.creates:
        document = {key: created[key] for key in ("apiVersion", "kind", "spec")}
        document["metadata"] = {key: created["metadata"][key] for key in ("name", "namespace")}
        click.echo(json.dumps(document, indent=2) if following.as_json else yaml.safe_dump(document, sort_keys=False))
        click.echo("Nothing was created; --yes creates this StreamReplay.", err=True)
        return EXIT_LANDED
    made = created["metadata"]["name"]
    click.echo(f"StreamReplay {namespace}/{made} was created.", err=following.as_json)
    if following.wait_seconds is None:
        if following.as_json:
            click.echo(json.dumps(as_data([created], one=True), indent=2))
        else:
            click.echo(f"Follow it with `kubectl get streamreplay {made} -n {namespace} --watch`.")
        return EXIT_LANDED
    return _followed(cluster, created, following.wait_seconds, as_json=following.as_json)


def replay_of(stream: Stream, asked: AskedReplay, now: datetime) -> dict[str, Any]:
    """Return the document of the StreamReplay that asks for the same as the options do, with a name of its own.

    `stream` has the transform that was asked for already.

    Raises:
        ResourceInvalid, RangesUnreadable: if it could not be one.
    """
    replayed = stream.metadata.name
    spec: dict[str, Any] = {"stream": replayed, "from": _origin(asked), "chunk": asked.chunk}
    if asked.limit is not None:
        spec["limit"] = _whole_number(asked.limit)
    if asked.transform is not None and stream.spec.transform is not None:
        spec["transform"] = {"sql": stream.spec.transform.sql}
    if asked.into is not None:
        spec["into"] = {"table": asked.into, "backfill": asked.backfill}
    name = f"{replayed[:_MOST_OF_NAME].rstrip('-.')}-{now:%Y%m%d%H%M%S}-{secrets.token_hex(2)}"
    metadata = {"name": name, "namespace": stream.metadata.namespace}
    document = {"apiVersion": API_VERSION, "kind": REPLAY_KIND, "metadata": metadata, "spec": spec}
    parse_replay(document, "The StreamReplay")
    return document


def _origin(asked: AskedReplay) -> dict[str, Any]:
    if asked.kind == "ranges" and asked.by_timestamp is not None:
        return {"ranges": {"byTimestamp": _moments(asked.by_timestamp)}}
    named = named_spans(asked.given) if asked.kind == "ranges" else ()
    if named:
        given = [
            {"origin": span.origin, "partition": span.partition, "from": span.begin, "until": span.end}
            for span in named
        ]
        return {"ranges": {"named": given}}
    if asked.kind == "ranges":
        spans = [span for text in asked.given for span in given_ranges(text).items()]
        positions = [
            {"topic": key.origin, "partition": key.key, "from": span.from_offset, "until": span.until_offset}
            for key, span in spans
        ]
        return {"ranges": {"positions": positions}}
    chosen: dict[str, Any] = {} if asked.between is None else _moments(asked.between)
    if asked.identifiers:
        chosen["ids"] = list(dict.fromkeys(asked.identifiers))
    if asked.matching is not None:
        chosen["errorMatching"] = asked.matching
    return {"deadLetters" if asked.kind == "dead-letters" else "failures": chosen}


def _moments(moments: Moments) -> dict[str, Any]:
    begin, until = (f"{moment:%Y-%m-%dT%H:%M:%S}Z" for moment in moments)
    return {"from": begin, "until": until}


def _whole_number(limit: float) -> int:
    if not limit.is_integer():
        raise click.UsageError(
            f"--limit {limit:g}: for a stream of a cluster, give a whole number of records per second."
        )
    return int(limit)


def _followed(cluster: ClusterReader, created: Mapping[str, Any], seconds: float, *, as_json: bool) -> int:
    """Print each step of a replay until its end, for no longer than so many seconds, and return the exit status."""
    namespace, name = (str(created["metadata"][key]) for key in ("namespace", "name"))
    deadline, shown, found = time.monotonic() + seconds, "", created
    while True:
        try:
            found = read_replay(cluster, namespace, name)
            words = progress_of(found)
        except Unreachable as problem:
            words = f"{problem} Trying again."
        phase = phase_of(found)
        if words != shown:
            click.echo(words, err=as_json)
            shown = words
        is_over = phase is not None and phase.is_final
        if is_over or time.monotonic() > deadline:
            break
        time.sleep(min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0.0)))
    if as_json:
        click.echo(json.dumps(as_data([found], one=True), indent=2))
    if not is_over:
        click.echo(
            f"StreamReplay {namespace}/{name} did not end within {seconds:g} s. The operator continues it; follow it with "
            f"`kubectl get streamreplay {name} -n {namespace} --watch`.",
            err=True,
        )
    return EXIT_LANDED if phase is ReplayPhase.SUCCEEDED else EXIT_NOT_LANDED


def phase_of(document: Mapping[str, Any]) -> ReplayPhase | None:
    """Return the phase of a StreamReplay; None where the operator has written none, or one of a later release."""
    phase = (document.get("status") or {}).get("phase")
    return ReplayPhase(phase) if phase in set(ReplayPhase) else None


def progress_of(document: Mapping[str, Any]) -> str:
    """Return how far a StreamReplay is, in one line."""
    status = document.get("status") or {}
    if not status:
        return "The operator has not picked it up yet."
    records = status.get("records") or {}
    counted = f", {records.get('replayed', 0)} of {records.get('asked', 0)} records landed" if records else ""
    # A database or a driver may have said some of it.
    problems = "".join(f"\n  {printable(str(problem))}" for problem in status.get("problems") or ())
    return f"{printable(str(status.get('phase')))}{counted}: {printable(str(status.get('message', '')))}{problems}"
