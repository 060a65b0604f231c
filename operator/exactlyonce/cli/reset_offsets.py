"""`exactlyonce offsets reset`: ask for other positions of a stream that is suspended or has halted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
from rich.table import Table

from exactlyonce.api.replay import why_not_replayable
from exactlyonce.bounded_text import one_line, some_of
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.consoles import console_of_output
from exactlyonce.cli.reset_subject import NotReset, Subject, subject_of
from exactlyonce.cli.reset_target import resolved
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.ledger.rows import LedgerView, Owner
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.asked_reset import MOST_CHARACTERS_OF_BY, MOST_CHARACTERS_OF_WHY, AskedReset
from exactlyonce.reconcile.observe import request_of
from exactlyonce.reconcile.reset_offsets import reset_problem

_COLUMNS = ("topic", "partition", "before", "after", "skipped", "repeated")


@click.command(
    "reset",
    cls=Taught,
    examples=(
        ("offsets reset orders -n shop --to earliest", "what that would read again; nothing is changed"),
        ("offsets reset orders.yaml --to timestamp=2026-01-31T12:00:00Z", "from the first record of a moment on"),
        (
            "offsets reset orders -n shop --to latest --keep-skipped --why 'bad day' --yes",
            "skip, and keep it for a replay",
        ),
        ("offsets reset orders -n shop --to '{\"orders\":{\"0\":120}}' --why 'bad join' --yes", "one partition"),
        ("offsets reset orders -n shop --withdraw", "take a request back that was not carried out"),
    ),
)
@TARGET
@click.option("--to", "to", help="earliest, latest, landed, timestamp=2026-01-31T12:00:00Z, or positions as JSON.")
@click.option("--keep-skipped", is_flag=True, help="Keep what is skipped in quarantine, from where it can be replayed.")
@click.option("--why", "message", help="Why the positions are reset; the ledger and an event keep it. --yes needs it.")
@click.option("--by", help="Who asks; the default is your user as the cluster knows it, or your login on this machine.")
@click.option(
    "--yes", is_flag=True, help="Request the reset; without this the table is printed and nothing is written."
)
@click.option("--withdraw", is_flag=True, help="Withdraw a request that has not been carried out.")
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def reset(
    target: str,
    to: str | None,
    message: str | None,
    by: str | None,
    output: str,
    *,
    keep_skipped: bool,
    yes: bool,
    withdraw: bool,
    **options: Any,
) -> None:
    """Set the positions from which a stream that is suspended or has halted continues.

    The table says for each partition how many records would be skipped and how many read again. Rows that have landed stay in
    the sink: what is read again is there twice where rows are only appended. What is skipped is recorded among the failures, as
    Lost or, with --keep-skipped, as Quarantined. POSITIONS of one partition leave the others where they are; `landed` begins a
    new checkpoint where the sink stands.

    The request is written to the stream's annotation exactlyonce.dev/reset-offsets, or beside the status of a FILE. It is
    carried out before the next driver is started, if nothing has landed by then. A query that keeps state cannot be reset,
    and neither can a stream with a batch that is decided in a sink of two phases. For stream NAME of a cluster, source and
    ledger are queried from here.

    Exit status 0, and 1 if the stream cannot be reset; then nothing was written.
    """
    if withdraw == (to is not None):
        raise click.UsageError("Give either --to, which says where the stream is to continue, or --withdraw.")
    if yes and not (message or "").strip():
        raise click.UsageError("--yes needs --why: the ledger keeps why the positions were reset.")
    subject = subject_of(target, options, at_rest=not withdraw)
    if withdraw:
        subject.write("")
        click.echo(f"Nothing is asked for any more in {subject.where}.")
        return
    assert to is not None, "the usage requires it"
    asked = _asked(subject, to, message or "", by, keep_skipped=keep_skipped)
    _show(subject, asked, as_json=output == "json")
    _warn_of_what_is_kept(subject, asked)
    subject.refuse(asked.to_json())
    if not yes:
        click.echo("Nothing was written: with --yes and --why this is asked for.", err=True)
        return
    subject.write(asked.to_json())
    click.echo(f"This is written to {subject.where}. {subject.follows}", err=True)


def _asked(subject: Subject, to: str, message: str, by: str | None, *, keep_skipped: bool) -> AskedReset:
    """Return the request.

    Raises:
        NotReset: if the next launch would refuse it.
        TargetInvalid: if `to` names no positions.
    """
    stream, view = subject.stream, subject.view()
    if view is None or view.stream.landed_batch is None:
        raise NotReset(
            f"Nothing of {stream.stream_id} has landed; spec.source says where it starts. Nothing was written."
        )
    landed, spec = view.landed.positions, stream.spec.source.spec
    unread = [str(key) for key in landed if not spec.selection().reads(key)]
    if unread:
        raise NotReset(
            f"spec.source no longer reads {some_of(unread)}, which has landed; run the stream once before. Nothing was written."
        )
    after = resolved(to, landed, stream.spec.source, subject.open_source)
    person = one_line(by or subject.by, MOST_CHARACTERS_OF_BY)
    found = view.stream.loads.found
    asked = AskedReset(
        view.stream.life, BatchNumber(view.stream.landed_batch), landed, after, keep_skipped, person, datetime.now(UTC),
        one_line(message, MOST_CHARACTERS_OF_WHY), "" if found is None else found.name,
    )  # fmt: skip
    problem = _problem(subject, view, asked)
    if problem is not None:
        raise NotReset(f"The positions of {stream.stream_id} cannot be reset: {problem}. Nothing was written.")
    return asked


def _warn_of_what_is_kept(subject: Subject, asked: AskedReset) -> None:
    """Say where a replay would refuse what is to be kept for one: the resource may be changed until then, so it is kept."""
    reason = why_not_replayable(subject.stream.spec) if asked.keeps_skipped else None
    if reason is not None and asked.skipped.non_empty():
        click.echo(
            f"What is skipped is kept in quarantine, and as the resource stands no replay would land it: {reason}. Without "
            "--keep-skipped it is recorded as lost.",
            err=True,
        )


def _problem(subject: Subject, view: LedgerView, asked: AskedReset) -> str | None:
    source = subject.open_source(subject.stream.spec.source).view(frozenset(asked.after), None, asked.after)
    request = request_of(subject.stream, Owner("", ""))
    return reset_problem(asked, view, source, request, stateful=view.stream.stateful)


def _show(subject: Subject, asked: AskedReset, *, as_json: bool) -> None:
    spec = subject.stream.spec.source.spec
    counts, rows = spec.positions_count_records, []
    for key, before in asked.before.items():
        after = asked.after[key]
        skipped, repeated = max(after - before, 0), max(before - after, 0)
        rows.append(
            {
                "topic": key.origin,
                "partition": key.key,
                "before": before if counts else spec.position_text(before),
                "after": after if counts else spec.position_text(after),
                "skipped": skipped if counts else None if skipped else 0,
                "repeated": repeated if counts else None if repeated else 0,
            }
        )
    if as_json:
        click.echo(
            json.dumps(
                {"stream": subject.stream.stream_id, "keepSkipped": asked.keeps_skipped, "partitions": rows}, indent=2
            )
        )
        return
    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("?" if row[name] is None else str(row[name]) for name in _COLUMNS))
    console_of_output().print(table)
    if counts:
        kept = "kept in quarantine" if asked.keeps_skipped else "recorded as lost"
        click.echo(
            f"{asked.skipped.record_count} records are skipped and {kept}, {asked.repeated.record_count} are read again."
        )
