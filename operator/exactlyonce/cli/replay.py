"""`exactlyonce replay`: land what a stream has in quarantine, of a FILE by a process of this machine, of a cluster by a pod."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from exactlyonce.cli.asked_replay import DEAD_LETTERS, FAILURES, RANGES, AskedReplay
from exactlyonce.cli.cluster_commands import OUTPUT, TIMEOUT, of_a_cluster
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.local_stream import choose_stream
from exactlyonce.cli.replay_here import replay_here
from exactlyonce.cli.replayed_transform import with_transform
from exactlyonce.cli.targets import NAME, SECRETS, STATE, TARGET, cluster_of, is_of_a_cluster
from exactlyonce.launch.replay_document import DEFAULT_MOST_RECORDS

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


@click.command(
    "replay",
    cls=Taught,
    examples=(
        ("replay orders.yaml", "what is in quarantine, and whether the source still holds it"),
        ("replay orders.yaml --yes", "land all of it, with the transform that the file has now"),
        ("replay orders.yaml --id 12/orders-0/340 --yes", "one range"),
        ("replay orders.yaml --transform mended.sql --limit 500 --yes", "with another transform, slowly"),
        ("replay orders.yaml --from dead-letters --yes", "the malformed records, by the schema that the file has now"),
        ("replay orders -n shop", "the StreamReplay that --yes would create for a stream of a cluster"),
        ("replay orders -n shop --yes --wait", "create it and follow it until it ends"),
    ),
)
@TARGET
@click.option(
    "--from",
    "kind",
    type=click.Choice([FAILURES, DEAD_LETTERS, RANGES]),
    default=FAILURES,
    show_default=True,
    help="What is replayed: ranges in quarantine; malformed records, from the bytes that were kept; what a reset skipped.",
)
@click.option(
    "--id", "identifiers", multiple=True, help="Only the range or the letter with this id; repeat it for more."
)
@click.option(
    "--between",
    nargs=2,
    type=click.DateTime(_TIMES),
    metavar="FROM UNTIL",
    help="Only ranges that got their status between these times, in UTC; or letters that landed then.",
)
@click.option("--matching", metavar="TEXT", help="Only ranges, or letters, whose error has this text in it.")
@click.option(
    "--ranges",
    "given",
    multiple=True,
    metavar="RANGES",
    help='With --from ranges: which, as {"orders":{"0":[100,200]}}, with texts where `exactlyonce offsets` shows texts; '
    "repeat it for more of a partition.",
)
@click.option(
    "--by-timestamp",
    nargs=2,
    type=click.DateTime(_TIMES),
    metavar="FROM UNTIL",
    help="With --from ranges: the records between these times, in UTC.",
)
@click.option(
    "--into",
    metavar="TABLE",
    help="With --from ranges: land all of their records into another table of the same database, with --backfill.",
)
@click.option(
    "--backfill", metavar="BACKFILL", help="With --into: the name under which the ledger records what has landed."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed, which is the default.")
@click.option("--yes", is_flag=True, help="Replay; for a stream of a cluster, create the StreamReplay.")
@click.option("--wait", is_flag=True, help="With --yes and a stream of a cluster: follow the replay until it ends.")
@TIMEOUT
@click.option(
    "--transform",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the SQL that makes the rows, instead of the stream's own transform.",
)
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), help="Records per second, on average.")
@click.option(
    "--chunk",
    type=click.IntRange(1, 1_000_000),
    default=DEFAULT_MOST_RECORDS,
    show_default=True,
    help="Records that one transaction lands, at most.",
)
@NAME
@STATE
@SECRETS
@OUTPUT
@of_a_cluster
def replay(
    target: str,
    kind: str,
    identifiers: tuple[str, ...],
    between: tuple[datetime, datetime] | None,
    matching: str | None,
    given: tuple[str, ...],
    by_timestamp: tuple[datetime, datetime] | None,
    into: str | None,
    backfill: str | None,
    transform: Path | None,
    limit: float | None,
    chunk: int,
    timeout: float,
    output: str,
    *,
    dry_run: bool,
    yes: bool,
    wait: bool,
    **options: Any,
) -> None:
    """Land records that a stream has in quarantine, or among its dead letters, each once, while it runs or rests.

    The ranges are read again in exactly their bounds, the earliest first, and go through the stream's transform as FILE has it
    now, or through the SQL of --transform. Rows and the range's status land in one transaction; the stream's positions stay
    where they are. A record that fails again stays in quarantine, and what stands beside it lands. What retention took is
    recorded as lost. The next replay continues one that was ended or killed, and takes the place of one that still runs.

    With --from dead-letters the bytes that were kept of malformed records are parsed by the format that FILE has now, whether
    or not the source still holds the records. One that is still malformed stays a dead letter.

    With --from ranges what a reset of the positions has skipped is taken up: it goes into quarantine and is landed from there.
    What the stream has landed, or will land itself, is refused.

    With --into it is a backfill: all records of the ranges land into that table, each once, whatever the stream has done with
    them. The ledger records under the name of --backfill what has landed; the same command continues one that was killed.

    For stream NAME of a cluster, the command creates a StreamReplay that asks for the same, and prints its name; the operator
    carries it out in a pod beside the stream. Without --yes it only has the API server check the StreamReplay, and prints it.
    With --wait it follows the replay until it ends. You need the rights to get the stream, and to create and get streamreplays.

    Without --yes nothing is changed. Exit status 1 if something that was asked for was not landed, or would not be.
    """
    _require_consistent(kind, given, by_timestamp, into, backfill, excluding=yes and dry_run)
    asked = AskedReplay(
        kind, identifiers, between, matching, given, by_timestamp, into, backfill, transform, limit, chunk
    )
    if is_of_a_cluster(target):
        from exactlyonce.cli.cluster_replay import Following, run_cluster_replay

        following = Following(yes, timeout if wait else None, output == "json")
        sys.exit(run_cluster_replay(*cluster_of(options), target, asked, following))
    if wait or output == "json":
        raise click.UsageError(
            "--wait and -o json are for a stream of a cluster; leave them out: with a FILE, the command always runs to the end."
        )
    stream = with_transform(choose_stream(Path(target), options["name"]), transform)
    sys.exit(replay_here(stream, asked, options["state"], options["secrets"], yes=yes))


def _require_consistent(
    kind: str,
    given: tuple[str, ...],
    by_timestamp: tuple[datetime, datetime] | None,
    into: str | None,
    backfill: str | None,
    *,
    excluding: bool,
) -> None:
    if excluding:
        raise click.UsageError("--yes and --dry-run cannot be combined; leave one out.")
    if (kind == RANGES) != (bool(given) != (by_timestamp is not None)):
        raise click.UsageError(
            "--from ranges needs exactly one of --ranges and --by-timestamp; without it, leave both out."
        )
    if (into is None) != (backfill is None) or (into is not None and kind != RANGES):
        raise click.UsageError("Give --into and --backfill together, and with --from ranges.")
