"""`exactlyonce backfills`: what the backfills of a stream into other tables have landed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from exactlyonce.bounded_text import one_line
from exactlyonce.cli.ages import age
from exactlyonce.cli.asked_ledger import AskedLedger, asked_ledger
from exactlyonce.cli.backfill import LANDED, LOST, records_of
from exactlyonce.cli.cluster_commands import OUTPUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET
from exactlyonce.errors import Refused
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedBackfill
from exactlyonce.ledger.rows import FailureRow, FailureStatus

_COLUMNS = ("name", "into", "status", "parts", "landed", "left", "lost", "changed")
_PART_COLUMNS = ("topic", "partition", "from", "until", "status", "error")


class UnknownBackfill(Refused):
    """The stream has no backfill of this name."""


@click.command(
    "backfills",
    cls=Taught,
    examples=(
        ("backfills orders -n shop", "how many records of each have landed and are left"),
        ("backfills orders.yaml --backfill january", "the parts of one, with the error of each that failed"),
        ("backfills orders -n shop -o json", "for a program"),
    ),
)
@TARGET
@click.option(
    "--backfill",
    "name_of_one",
    metavar="BACKFILL",
    help="Show only the backfill with this name, with all of its parts.",
)
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def backfills(target: str, name_of_one: str | None, output: str, **options: Any) -> None:
    """List the backfills of a stream into other tables, the earliest first, as the stream's ledger records them.

    A backfill is Done once nothing of it is left, Replaying while a replay has claimed parts of it, even if that replay has
    died, and Unfinished if parts are left that no replay has claimed. LANDED, LEFT and LOST count records; lost are those that
    the source no longer held. Adjacent parts that have landed count as one.

    Nothing is changed. To continue a backfill, run `exactlyonce replay … --into TABLE --backfill BACKFILL` with the same
    ranges. For stream NAME of a cluster, this command queries the ledger itself, with the login in the stream's secret; your
    kubeconfig needs the right to get that secret. Exit status 1 if there is no backfill with the given name.
    """
    asked = asked_ledger(target, options)
    found = asked.ledger.kept_backfills(asked.stream.stream_id)
    if name_of_one is not None:
        found = tuple(kept for kept in found if kept.backfill.name == name_of_one)
        if not found:
            raise UnknownBackfill(
                f"{asked.stream.stream_id} has no backfill {one_line(name_of_one)}; leave --backfill out to list those it has."
            )
    listed = [_data(asked, kept, with_parts=name_of_one is not None) for kept in found]
    if output == "json":
        click.echo(json.dumps(listed, indent=2))
    elif not listed:
        click.echo(f"{asked.stream.stream_id} has no backfills.")
    else:
        now = datetime.now(UTC)
        print_table(_COLUMNS, [{**it, "changed": age(str(it["changed"]), now)} for it in listed])
        if name_of_one is not None:
            click.echo()
            parts = listed[0]["ranges"]
            print_table(_PART_COLUMNS, [{**part, "error": one_line(part["error"], 100)} for part in parts])


def _data(asked: AskedLedger, kept: RecordedBackfill, *, with_parts: bool) -> dict[str, Any]:
    parts = kept.backfill.parts
    left = [row for row in parts if row.status in HELD]
    is_taken = any(row.status is FailureStatus.REPLAYING for row in left)
    return {
        "name": kept.backfill.name,
        "into": kept.backfill.into,
        "status": "Replaying" if is_taken else "Unfinished" if left else "Done",
        "landed": records_of(parts, LANDED),
        "left": records_of(parts, HELD),
        "lost": records_of(parts, LOST),
        "began": kept.began_at.astimezone(UTC).isoformat(),
        "changed": kept.changed_at.astimezone(UTC).isoformat(),
        "parts": len(parts),
        **({"ranges": [_part(asked, row) for row in parts]} if with_parts else {}),
    }


def _part(asked: AskedLedger, row: FailureRow) -> dict[str, Any]:
    return {
        "topic": row.partition.origin,
        "partition": row.partition.key,
        "from": asked.position(row.from_offset),
        "until": asked.position(row.until_offset),
        # A part that no replay has taken is Quarantined in the ledger, a word for what a stream has passed over.
        "status": "Left" if row.status is FailureStatus.QUARANTINED else str(row.status),
        "error": row.error,
    }
