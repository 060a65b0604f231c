"""`exactlyonce failures show`: the ranges of a stream that failed, were quarantined or are lost."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from exactlyonce.bounded_text import one_line
from exactlyonce.cli.ages import age
from exactlyonce.cli.asked_ledger import AskedLedger, asked_ledger
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.default_command import SHOW
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.errors import Refused
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber

UNFINISHED = (
    FailureStatus.OPEN, FailureStatus.QUARANTINED, FailureStatus.REPLAYING, FailureStatus.LOST, FailureStatus.GIVEN_UP,
)  # fmt: skip
"""What has no effect in the sink as far as the ledger knows; all else has been landed, or is read again."""

_IDENTIFIER = re.compile(r"(\d{1,18})/.+/\d+")
_MOST_OF_ONE_BATCH = 100_000
_COLUMNS = ("id", "topic", "partition", "from", "until", "status", "since", "error")


class UnknownFailure(Refused):
    """No range has this id, or it has another status than the one that was asked for."""


@click.command(
    SHOW,
    cls=Taught,
    examples=(
        ("failures orders -n shop", "what has no effect in the sink, earliest first"),
        ("failures orders.yaml --status Quarantined -o json", "what is in quarantine, for a program"),
        ("failures orders -n shop --id 12/orders-0/340", "one range, with its whole error"),
        ("failures show give-up -n shop", "of a stream whose name is that of a command"),
    ),
)
@TARGET
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(status) for status in FailureStatus], case_sensitive=False),
    help="Only ranges with this status; repeat it for more. The default is Open, Quarantined, Replaying, Lost and GivenUp.",
)
@click.option("--all", "everything", is_flag=True, help="Ranges with any status, also those that have landed since.")
@click.option("--id", "identifier", help="Only the range with this id, with everything that is known of it.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many ranges at most."
)
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def show(
    target: str,
    statuses: tuple[str, ...],
    identifier: str | None,
    limit: int,
    output: str,
    *,
    everything: bool,
    **options: Any,
) -> None:
    """List the ranges of records that did not land, as the stream's ledger has them.

    A range is Open while its batch fails and has not landed, Quarantined where the stream continued without it
    (recovery.onPoisonBatch), Lost where its records take no effect, and GivenUp where a person has said so. Closed, Replayed
    and Superseded ranges have landed or are read again. The error is that of the batch. UNTIL is the position after the last
    record.

    Nothing is changed. For stream NAME of a cluster the ledger is queried from here, with the login in the stream's secret,
    which your kubeconfig has to be allowed to get. Exit status 1 if there is no range with the id.
    """
    if everything and statuses:
        raise click.UsageError("--all and --status cannot be combined; leave one out.")
    wanted = tuple(FailureStatus(status) for status in statuses) or (tuple(FailureStatus) if everything else UNFINISHED)
    asked = asked_ledger(target, options)
    if identifier is not None:
        only = wanted if statuses else tuple(FailureStatus)
        _show_one(asked, find_failure(asked, identifier, only), as_json=output == "json")
        return
    found = asked.ledger.kept_failures(asked.stream.stream_id, wanted, None, limit + 1)
    _list(asked, found[:limit], wanted, as_json=output == "json")
    if len(found) > limit:
        click.echo(f"These are the first {limit}; --limit shows more.", err=True)


def find_failure(asked: AskedLedger, identifier: str, statuses: Collection[FailureStatus]) -> RecordedFailure:
    """Return the range with an id.

    Raises:
        UnknownFailure: if there is none, or it has none of the statuses.
    """
    stream_id, written = asked.stream.stream_id, _IDENTIFIER.fullmatch(identifier)
    if written is None:
        raise UnknownFailure(
            f"{one_line(identifier)} is not the id of a failed range, which has the form BATCH/PARTITION/POSITION, such as "
            f"12/orders-0/340; `exactlyonce failures` lists those of {stream_id}."
        )
    batch = BatchNumber(int(written[1]))
    rows = asked.ledger.kept_failures(stream_id, tuple(FailureStatus), [batch], _MOST_OF_ONE_BATCH)
    found = next((kept for kept in rows if kept.identifier == identifier), None)
    if found is None:
        raise UnknownFailure(
            f"{stream_id} has no failed range {one_line(identifier)}; `exactlyonce failures --all` lists those it has."
        )
    if found.row.status not in statuses:
        raise UnknownFailure(f"{found.identifier} of {stream_id} is {found.row.status}, not {_either(statuses)}.")
    return found


def find_failures(asked: AskedLedger, identifiers: Sequence[str]) -> list[RecordedFailure]:
    """Return the ranges with these ids, whatever their status is.

    Raises:
        UnknownFailure: if there is no range with one of them.
    """
    return [find_failure(asked, identifier, tuple(FailureStatus)) for identifier in dict.fromkeys(identifiers)]


def failure_data(asked: AskedLedger, kept: RecordedFailure) -> dict[str, object]:
    """Render a range for a program."""
    row = kept.row
    return {
        "id": kept.identifier,
        "batch": row.batch,
        "topic": row.partition.origin,
        "partition": row.partition.key,
        "from": asked.position(row.from_offset),
        "until": asked.position(row.until_offset),
        "status": str(row.status),
        "since": kept.changed_at.astimezone(UTC).isoformat(),
        "error": row.error,
        "brokers": row.address,
        "originId": row.origin_id or None,
        "replay": row.token or None,
        "decided": row.is_decided,
    }


def _list(
    asked: AskedLedger, found: Sequence[RecordedFailure], statuses: Collection[FailureStatus], *, as_json: bool
) -> None:
    listed = [failure_data(asked, kept) for kept in found]
    if as_json:
        click.echo(json.dumps(listed, indent=2))
        return
    if not listed:
        click.echo(f"No range of {asked.stream.stream_id} is {_either(statuses)}.")
        return
    now = datetime.now(UTC)
    print_table(
        _COLUMNS,
        [{**it, "since": age(str(it["since"]), now), "error": one_line(str(it["error"]), 100)} for it in listed],
    )


def _show_one(asked: AskedLedger, kept: RecordedFailure, *, as_json: bool) -> None:
    data = failure_data(asked, kept)
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    for name, value in data.items():
        if value is not None:
            click.echo(f"{name:<10}{one_line(str(value), len(str(value)) + 1)}")


def _either(statuses: Collection[FailureStatus]) -> str:
    *first, last = (str(status) for status in statuses)
    return f"{', '.join(first)} or {last}" if first else last
