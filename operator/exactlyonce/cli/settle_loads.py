"""`exactlyonce settle-loads`: a person's answer for loads of which the sink no longer knows whether it has committed them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.cli.cluster_commands import of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.decided_loads import DecidedLoads, NothingToSettle, loads_in_cluster, loads_in_ledger
from exactlyonce.cli.reset_subject import login_name, person_of
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster, looked_at
from exactlyonce.ledger.decided import Answer
from exactlyonce.reconcile.decided import answers_in

_TRIES = 3


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
@click.option(
    "--completed",
    metavar="LABEL",
    multiple=True,
    help="A load that its sink finished with some of its rows, and you have added the others.",
)
@click.option(
    "--removed",
    metavar="LABEL",
    multiple=True,
    help="A load that its sink finished with some of its rows, and you have removed these.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be written down, and write nothing.")
@NAME
@STATE
@SECRETS
@of_a_cluster
def settle_loads(
    target: str,
    committed: tuple[str, ...],
    aborted: tuple[str, ...],
    completed: tuple[str, ...],
    removed: tuple[str, ...],
    *,
    dry_run: bool,
    **options: Any,
) -> None:
    """Answer for loads that a stream's ledger has decided and that its sink has forgotten, or has loaded in part.

    A stream halts with LoadsInDoubt where it was down for so long that its sink no longer knows what became of a load.
    The message names each load with its label, its rows and their ranges in the source. Look for these rows in the table: if
    they are there, the load was committed; if not, it was aborted, and its rows are written again. A wrong answer loses rows
    or doubles them, and nothing can tell. An answer counts only where the sink does not know the load.

    A stream halts with LedgerBehindSink if its sink has committed a load that its ledger does not know: the ledger went back to
    an earlier state. Look for its rows. If they are there (--committed), its records count as landed and the stream continues
    after them; what the ledger has lost before them is kept in quarantine. If it has none of them (--aborted), the records are
    read again.

    A stream halts with RowsPartlyLoaded where its sink has finished a load with some of its rows. Remove these from the table
    (--removed: all of them are written again), or add the others (--completed).

    For a stream of a cluster the answers become its annotation exactlyonce.dev/settle-loads, and the operator continues with
    them. For a FILE they are kept beside its status, and the next `exactlyonce run` continues with them. A label that has its
    transaction behind a # is written with it. Without an answer, the loads are listed. Exit status 1 if nothing was written.

    Labels that the ledger does not have are refused. The ledger of a stream of a cluster is read with the login of its own
    secret, or with yours, as `exactlyonce offsets` does. Where it cannot be read, the stream's status and its message tell
    which loads there are, and any other label is written with a warning: where the batch does not have it, it has no effect.
    """
    given = _given(
        {
            Answer.COMMITTED: committed,
            Answer.ABORTED: aborted,
            Answer.COMPLETED: completed,
            Answer.REMOVED: removed,
        }
    )
    if is_of_a_cluster(target):
        _in_cluster(target, given, options, dry_run=dry_run)
    else:
        _of_file(target, given, options, dry_run=dry_run)


def _given(labels: Mapping[Answer, tuple[str, ...]]) -> dict[str, Answer]:
    given: dict[str, Answer] = {}
    for answer, answered in labels.items():
        for label in answered:
            if answers_in(f"{label}={answer}") != {label: answer}:
                raise click.UsageError(f"{label!r} is not one label; repeat --{answer.lower()} for each, without =.")
            before = given.setdefault(label, answer)
            if before is not answer:
                raise click.UsageError(
                    f"{label} cannot be {before.lower()} and {answer.lower()}; give one answer for each load."
                )
    return given


def settled(loads: DecidedLoads, before: str | None, given: Mapping[str, Answer], by: str = "") -> str:
    """Return the text of all answers: those that were given before, of loads that may still wait, and the new ones.

    The ledger keeps `by` whom an answer was given for a load that it does not know.

    Raises:
        NothingToSettle: if an answer is for a load that the decided batch does not have, as its ledger says.
    """
    unknown = [label for label in given if label not in loads.named]
    if unknown and not loads.not_read:
        raise NothingToSettle(
            f"{', '.join(unknown)}: the decided batch {loads.batch} of {loads.stream} has no such load, so nothing was "
            f"written; it has {', '.join(loads.named) or 'none that waits'}."
        )
    kept = {
        label: answer for label, answer in answers_in(before or "").items() if loads.not_read or label in loads.named
    }
    words = [f"{label}={answer}" for label, answer in sorted({**kept, **given}.items())]
    if by and any(label == loads.found for label in given):
        words.append("by=" + re.sub(r"[\s,=]+", "_", by))
    return " ".join(words)


def _in_cluster(name: str, given: Mapping[str, Answer], options: Mapping[str, Any], *, dry_run: bool) -> None:
    cluster, namespace = cluster_of(options)
    for _ in range(_TRIES):
        stream = cluster.stream(namespace, name)
        loads = loads_in_cluster(cluster, stream)
        before = (stream["metadata"].get("annotations") or {}).get(SETTLE_LOADS)
        text = settled(loads, before, given, person_of(cluster) if loads.found else "")
        _warn(loads, given)
        if not given:
            _list(loads)
            return
        _show(loads, text, f"the annotation {SETTLE_LOADS} of {loads.stream}", dry_run=dry_run)
        if dry_run or cluster.annotate(stream, SETTLE_LOADS, text, "answer for loads of") is not None:
            return
    raise NothingToSettle(
        f"{namespace}/{name} is being changed by somebody else all the time; nothing was written: try again."
    )


def _of_file(target: str, given: Mapping[str, Answer], options: Mapping[str, Any], *, dry_run: bool) -> None:
    opened = looked_at(target, options)
    loads = loads_in_ledger(opened.stream.stream_id, opened.ledger.view(opened.stream.stream_id))
    text = settled(loads, opened.answers.read(), given, login_name())
    if not given:
        _list(loads)
        return
    _show(loads, text, str(opened.answers.file), dry_run=dry_run)
    if not dry_run:
        opened.answers.write(text)


def _list(loads: DecidedLoads) -> None:
    if loads.found:
        click.echo(f"The sink of {loads.stream} has committed batch {loads.batch}, and the ledger does not know it:")
    elif loads.batch is None:
        click.echo(f"The latest verdict of {loads.stream} names no decided batch; its driver's message may name loads:")
    else:
        click.echo(
            f"Batch {loads.batch} of {loads.stream} is decided; {loads.loads} loads are not known to be committed:"
        )
    for label, told in loads.named.items():
        click.echo(f"  {label}  {told}".rstrip())
    if loads.loads > len(loads.named):
        click.echo(f"  and {loads.loads - len(loads.named)} more, which the ledger names")
    if loads.message:
        click.echo(loads.message)


def _warn(loads: DecidedLoads, given: Mapping[str, Answer]) -> None:
    """Warn of labels that may be mistyped, where the ledger was not read, so that nothing tells for sure."""
    if not loads.not_read:
        return
    click.echo(f"The ledger of {loads.stream} is not read from here: {loads.not_read}", err=True)
    unknown = [label for label in given if not loads.names(label)]
    if unknown:
        click.echo(
            f"{', '.join(unknown)}: neither the latest verdict nor the message names such a load. An answer for a load that "
            "the batch does not have has no effect: the stream then halts again with the same message.",
            err=True,
        )


def _show(loads: DecidedLoads, text: str, where: str, *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "is"
    for label, answer in answers_in(text).items():
        if label == loads.found:
            counts = "its records count as landed" if answer.says_rows_are_there else "its records are read again"
            click.echo(f"  {label}: {answer}; {counts}")
            continue
        follows = "counts as landed" if answer.says_rows_are_there else "is written again from its ranges"
        where_it_counts = "has loaded a part of it" if answer.is_of_a_part else "does not know it"
        click.echo(f"  {label}: {answer}; where the sink {where_it_counts}, it {follows}")
    left = [label for label in loads.named if label not in answers_in(text)]
    click.echo(f"This {verb} written to {where}." + (f" Without an answer: {', '.join(left)}." if left else ""))
