"""`exactlyonce settle-loads`: a person's answer for loads of which the sink no longer knows whether it has committed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.cli.cluster_commands import of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster, looked_at
from exactlyonce.errors import Refused
from exactlyonce.ledger.decided import Answer
from exactlyonce.reconcile.decided import answers_in

_TRIES = 3


class NothingToSettle(Refused):
    """Nothing was written: there is nothing to answer for, or an answer is for a load that the stream has not recorded."""


@dataclass(frozen=True, slots=True)
class DecidedLoads:
    """The loads of a decided batch by the names that answers have, each with what is told of it; `loads` is their number."""

    stream: str
    batch: int
    named: Mapping[str, str]
    loads: int


@click.command(
    "settle-loads",
    cls=Taught,
    examples=(
        ("settle-loads orders -n shop", "which loads wait for an answer"),
        ("settle-loads orders -n shop --committed LABEL --aborted LABEL", "what you have found of two of them"),
        ("settle-loads orders.yaml --aborted LABEL --dry-run", "what would be written down, for a stream of a file"),
    ),
)
@TARGET
@click.option(
    "--committed", metavar="LABEL", multiple=True, help="A load whose rows are in the table; repeat it for more."
)
@click.option(
    "--aborted", metavar="LABEL", multiple=True, help="A load whose rows are not in the table; repeat it for more."
)
@click.option("--dry-run", is_flag=True, help="Say what would be written down, and write nothing.")
@NAME
@STATE
@SECRETS
@of_a_cluster
def settle_loads(
    target: str, committed: tuple[str, ...], aborted: tuple[str, ...], *, dry_run: bool, **options: Any
) -> None:
    """Answer for loads that a stream's ledger has decided and that its sink has forgotten.

    A stream halts with LoadsInDoubt where it was down for so long that its sink no longer knows what became of a load.
    The message names each load with its label, its rows and their ranges in the source. Look for these rows in the table: are
    they there, the load is committed; are they not, it is aborted, and its rows are written again. A wrong answer loses rows
    or doubles them, and nothing can tell. An answer counts only where the sink does not know the load.

    For a stream of a cluster the answers become its annotation exactlyonce.dev/settle-loads, and the operator continues with
    them. For a FILE they are kept beside its status, and the next `exactlyonce run` continues with them. A label that has its
    transaction behind a # is written with it. Without an answer, the loads are listed. Exit status 1 if nothing was written.
    """
    both = sorted({*committed} & {*aborted})
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be committed and aborted; give one answer for each load.")
    given = {**dict.fromkeys(committed, Answer.COMMITTED), **dict.fromkeys(aborted, Answer.ABORTED)}
    if is_of_a_cluster(target):
        _in_cluster(target, given, options, dry_run=dry_run)
    else:
        _of_file(target, given, options, dry_run=dry_run)


def settled(loads: DecidedLoads, before: str | None, given: Mapping[str, Answer]) -> str:
    """Return the text of all answers: those that were given before, of loads that still wait, and the new ones.

    Raises:
        NothingToSettle: if an answer is for a load that the decided batch does not have.
    """
    unknown = [label for label in given if label not in loads.named]
    if unknown and loads.loads <= len(loads.named):
        raise NothingToSettle(
            f"{', '.join(unknown)}: the decided batch {loads.batch} of {loads.stream} has no such load, so nothing was "
            f"written; it has {', '.join(loads.named)}."
        )
    kept = {label: answer for label, answer in answers_in(before or "").items() if label in loads.named}
    return " ".join(f"{label}={answer}" for label, answer in sorted({**kept, **given}.items()))


def recorded_loads(stream: Mapping[str, Any]) -> DecidedLoads:
    """Return the loads that the recorded verdict of a stream of a cluster names; of many, the first ones.

    Raises:
        NothingToSettle: if it names no decided batch.
    """
    key = f"{stream['metadata']['namespace']}/{stream['metadata']['name']}"
    verdict = (stream.get("status") or {}).get("verdict") or {}
    for item in verdict.get("evidence") or ():
        data = item.get("data") or {}
        if "labels" in data:
            return DecidedLoads(key, int(data["batch"]), dict.fromkeys(data["labels"], ""), int(data["loads"]))
    raise _nothing_decided(key)


def _nothing_decided(stream: str) -> NothingToSettle:
    return NothingToSettle(f"{stream} has no batch that is decided and waits for its sink; nothing was written.")


def _in_cluster(name: str, given: Mapping[str, Answer], options: Mapping[str, Any], *, dry_run: bool) -> None:
    cluster, namespace = cluster_of(options)
    for _ in range(_TRIES):
        stream = cluster.stream(namespace, name)
        loads = recorded_loads(stream)
        before = (stream["metadata"].get("annotations") or {}).get(SETTLE_LOADS)
        text = settled(loads, before, given)
        if not given:
            _list(loads, str((stream.get("status") or {}).get("message") or ""))
            return
        _show(loads, text, f"the annotation {SETTLE_LOADS} of {loads.stream}", dry_run=dry_run)
        if dry_run or cluster.annotate(stream, SETTLE_LOADS, text, "answer for loads of") is not None:
            return
    raise NothingToSettle(
        f"{namespace}/{name} is being changed by somebody else all the time; nothing was written: try again."
    )


def _of_file(target: str, given: Mapping[str, Answer], options: Mapping[str, Any], *, dry_run: bool) -> None:
    opened = looked_at(target, options)
    view = opened.ledger.view(opened.stream.stream_id)
    decided = None if view is None else view.decided
    if decided is None:
        raise _nothing_decided(opened.stream.stream_id)
    named = {one.answered_as: f"{one.rows} rows of {one.ranges}" for one in decided.committables}
    loads = DecidedLoads(opened.stream.stream_id, decided.batch, named, len(named))
    text = settled(loads, opened.answers.read(), given)
    if not given:
        _list(loads, "")
        return
    _show(loads, text, str(opened.answers.file), dry_run=dry_run)
    if not dry_run:
        opened.answers.write(text)


def _list(loads: DecidedLoads, message: str) -> None:
    click.echo(f"Batch {loads.batch} of {loads.stream} is decided; {loads.loads} loads are not known to be committed:")
    for label, told in loads.named.items():
        click.echo(f"  {label}  {told}".rstrip())
    if loads.loads > len(loads.named):
        click.echo(f"  and {loads.loads - len(loads.named)} more, which the ledger names")
    if message:
        click.echo(message)


def _show(loads: DecidedLoads, text: str, where: str, *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "is"
    for word in text.split():
        label, _, answer = word.rpartition("=")
        follows = "counts as landed" if answer == Answer.COMMITTED else "is written again from its ranges"
        click.echo(f"  {label}: {answer}; where the sink does not know it, it {follows}")
    left = [label for label in loads.named if label not in answers_in(text)]
    click.echo(f"This {verb} written to {where}." + (f" Without an answer: {', '.join(left)}." if left else ""))
