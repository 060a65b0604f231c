"""`exactlyonce failures give-up` and `take-back`: a person ends ranges that nothing can replay, or takes that back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from exactlyonce.bounded_text import one_line, some_of
from exactlyonce.cli.asked_ledger import AskedLedger, asked_ledger
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.failures import failure_data, find_failures
from exactlyonce.cli.reset_subject import login_name, person_of
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.giving_up import (
    Changed,
    GivenUp,
    give_up_ranges,
    take_back_ranges,
    why_not_given_up,
    why_not_taken_back,
)
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.reconcile.asked_reset import MOST_CHARACTERS_OF_BY, MOST_CHARACTERS_OF_WHY

_COLUMNS = ("id", "topic", "partition", "from", "until", "status", "error")
_ID = click.option(
    "--id", "identifiers", multiple=True, required=True, help="The id of a range; repeat the option for more ranges."
)
BY = click.option(
    "--by", help="Who is asking; the default is your user name in the cluster, or your login on this machine."
)


@dataclass(frozen=True)
class _CommandWords:
    """One of the two commands, in words."""

    can: str
    done: str
    event: str


_GIVES_UP = _CommandWords("can be given up", "given up", "RangesGivenUp")
_TAKES_BACK = _CommandWords("can be taken back", "back in quarantine", "RangesTakenBack")


@click.command(
    "give-up",
    cls=Taught,
    examples=(
        (
            "failures give-up orders -n shop --id 12/orders-0/340",
            "check whether it can be given up; nothing is changed",
        ),
        ("failures give-up orders -n shop --id 12/orders-0/340 --why 'test data' --yes", "give it up"),
        (
            "failures give-up orders.yaml --id 12/orders-0/340 --id 12/orders-1/9 --why 'bad key' --yes",
            "two ranges of the stream in a file",
        ),
    ),
)
@TARGET
@_ID
@click.option("--why", "message", help="Why they are given up, for the ledger and an event; required with --yes.")
@BY
@click.option("--yes", is_flag=True, help="Give them up; without it they are only shown.")
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def give_up(
    target: str,
    identifiers: tuple[str, ...],
    message: str | None,
    by: str | None,
    output: str,
    *,
    yes: bool,
    **options: Any,
) -> None:
    """Give up ranges in quarantine that nothing can replay, or whose records are of no use.

    The records of such a range never reach the sink: no replay lands them, not even one that has already claimed the range,
    and neither alerts nor maxQuarantined count it any longer. The range stays in the ledger as GivenUp, and its error says who
    gave it up, when and why. `exactlyonce failures take-back` returns it to quarantine. If the records matter, write them to
    the sink by hand first.

    For stream NAME of a cluster, this command changes the ledger itself, with the login in the stream's secret; your kubeconfig
    needs the right to get that secret. If it also has the right to create events, the stream gets the event RangesGivenUp.

    Exit status 1 if a range was not given up, or could not be.
    """
    if yes and not (message or "").strip():
        raise click.UsageError("--yes needs --why: the ledger records why the ranges were given up.")
    asked = asked_ledger(target, options)
    reasons = [(kept, why_not_given_up(kept.row)) for kept in find_failures(asked, identifiers)]
    told = GivenUp(person(target, by, options), datetime.now(UTC), one_line(message or "", MOST_CHARACTERS_OF_WHY))

    def change(rows: Sequence[FailureRow]) -> Changed:
        return give_up_ranges(asked.ledger, asked.stream.stream_id, rows, told)

    def words(named: str) -> str:
        return f"{told.by} gave up {named}: {told.message}"

    _run(_Asked(asked, reasons, target, options), _GIVES_UP, change if yes else None, words, output)


@click.command(
    "take-back",
    cls=Taught,
    examples=(
        (
            "failures take-back orders -n shop --id 12/orders-0/340",
            "check whether it can be taken back; nothing is changed",
        ),
        ("failures take-back orders -n shop --id 12/orders-0/340 --yes", "return it to quarantine"),
    ),
)
@TARGET
@_ID
@BY
@click.option("--yes", is_flag=True, help="Take them back; without it they are only shown.")
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def take_back(
    target: str, identifiers: tuple[str, ...], by: str | None, output: str, *, yes: bool, **options: Any
) -> None:
    """Return ranges that were given up to quarantine, so that a replay can land them.

    A range is refused if the stream has read it again since, or may have because it started over: it would land twice.

    Exit status 1 if a range was not taken back, or could not be.
    """
    asked = asked_ledger(target, options)
    found = find_failures(asked, identifiers)
    view = asked.ledger.view(asked.stream.stream_id)
    life = "" if view is None else view.stream.life
    reasons = [(kept, why_not_taken_back(kept.row, life)) for kept in found]

    def change(rows: Sequence[FailureRow]) -> Changed:
        return take_back_ranges(asked.ledger, asked.stream.stream_id, rows)

    def words(named: str) -> str:
        return f"{person(target, by, options)} returned to quarantine: {named}"

    _run(_Asked(asked, reasons, target, options), _TAKES_BACK, change if yes else None, words, output)


@dataclass(frozen=True)
class _Asked:
    """What a command is about: the ranges, each with a sentence where it may not be changed, or None."""

    ledger: AskedLedger
    reasons: Sequence[tuple[RecordedFailure, str | None]]
    target: str
    options: Mapping[str, Any]


def _run(
    asked: _Asked,
    act: _CommandWords,
    change: Callable[[Sequence[FailureRow]], Changed] | None,
    words: Callable[[str], str],
    output: str,
) -> None:
    """Change the ranges, or only show them, and exit; `words` says in the event what was done with the ranges that it names."""
    ready = [kept for kept, reason in asked.reasons if reason is None]
    rows = [kept.row for kept in ready]
    changed = Changed((), ()) if change is None or not rows else change(rows)
    refused = [*(reason for _, reason in asked.reasons if reason is not None), *changed.refused]
    shown = [RecordedFailure(row, datetime.now(UTC)) for row in changed.rows] if change is not None else ready
    _show(asked.ledger, shown, refused, act, as_json=output == "json", is_done=change is not None)
    if changed.rows:
        named = some_of([f"{kept.identifier} (until {kept.row.until_offset})" for kept in shown])
        tell_stream(asked.target, asked.options, act.event, words(named))
    sys.exit(1 if refused else 0)


def _show(
    asked: AskedLedger,
    shown: Sequence[RecordedFailure],
    refused: Sequence[str],
    act: _CommandWords,
    *,
    as_json: bool,
    is_done: bool,
) -> None:
    listed = [failure_data(asked, kept) for kept in shown]
    for data in listed:
        data.pop("since")
    if as_json:
        told = {"stream": asked.stream.stream_id, "changed": is_done, "ranges": listed, "refused": list(refused)}
        click.echo(json.dumps(told, indent=2))
        return
    if listed:
        print_table(_COLUMNS, [{**data, "error": one_line(str(data["error"]), 100)} for data in listed])
    for sentence in refused:
        click.echo(f"{one_line(sentence, 500)}.", err=True)
    count = "1 range" if len(shown) == 1 else f"{len(shown)} ranges"
    if is_done and shown:
        click.echo(f"{count} of {asked.stream.stream_id} {'is' if len(shown) == 1 else 'are'} {act.done}.")
    elif shown:
        click.echo(f"{count} of {asked.stream.stream_id} {act.can}. Nothing was changed; --yes does it.")
    else:
        click.echo("Nothing was changed.")


def person(target: str, by: str | None, options: Mapping[str, Any]) -> str:
    """Return who asks: the given name, or whom the cluster or this machine takes them for."""
    if by is None:
        by = person_of(cluster_of(options)[0]) if is_of_a_cluster(target) else login_name()
    return one_line(by, MOST_CHARACTERS_OF_BY)


def tell_stream(target: str, options: Mapping[str, Any], reason: str, message: str) -> None:
    """Create an event of a stream of a cluster, if that can be; the ledger has it in any case."""
    if not is_of_a_cluster(target):
        return
    from exactlyonce.control.cluster import Cluster

    cluster, namespace = cluster_of(options)
    with suppress(ExactlyOnceError):
        Cluster(cluster.api, "").tell(cluster.stream(namespace, target), reason, message, warning=False)
