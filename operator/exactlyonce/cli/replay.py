"""`exactlyonce replay`: land what a stream has in quarantine, by a process beside the stream; without --yes, only show it."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import assert_never

import click
from rich.table import Column, Table
from rich.text import Text

from exactlyonce.api.replay import require_replayable
from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import source_address
from exactlyonce.bounded_text import one_line
from exactlyonce.cli.asked_ledger import AskedLedger
from exactlyonce.cli.commands import ExtraMissing, Taught
from exactlyonce.cli.consoles import console_of_output
from exactlyonce.cli.failures import find_failure
from exactlyonce.cli.local_replay import run_replay
from exactlyonce.cli.local_stream import LocalStream, choose_stream, open_stream
from exactlyonce.cli.targets import FILE, NAME, SECRETS, STATE
from exactlyonce.errors import OriginMissing, Refused
from exactlyonce.launch.replay_document import DEFAULT_MOST_RECORDS, ReplayReport
from exactlyonce.launch.replay_source import facts_of
from exactlyonce.launch.secrets import read_secret
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import Finding, Gone, Held, OfAnother, RangeKey, finding_of, why_not
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import SourceCheck

_MOST_RANGES = 100_000
_MOST_SQL = 100_000
_COLUMNS = ("id", "topic", "partition", "from", "until", "records", "status", "since", "source")
_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]


class TransformUnreadable(Refused):
    """The file with the transform cannot be used as a transform."""


@dataclass(frozen=True)
class Candidate:
    """A range that was asked for; `refusal` says why it cannot be replayed, and `lost` how many records the source has not."""

    kept: RecordedFailure
    refusal: str | None = None
    lost: int = 0

    @property
    def words(self) -> str:
        """What the source and the ledger say of it, in a few words."""
        if self.refusal is not None:
            return self.refusal
        return "held" if not self.lost else f"{self.lost} records are gone and would be recorded as lost"


@click.command(
    "replay",
    cls=Taught,
    examples=(
        ("replay orders.yaml", "what is in quarantine, and whether the source still holds it"),
        ("replay orders.yaml --yes", "land all of it, with the transform that the file has now"),
        ("replay orders.yaml --id 12/orders-0/340 --yes", "one range"),
        ("replay orders.yaml --transform mended.sql --limit 500 --yes", "with another transform, slowly"),
    ),
)
@FILE
@click.option(
    "--from",
    type=click.Choice(["failures"]),
    default="failures",
    show_default=True,
    expose_value=False,  # there is one choice yet
    help="What is replayed: the ranges that are in quarantine.",
)
@click.option("--id", "identifiers", multiple=True, help="Only the range with this id; repeat it for more.")
@click.option(
    "--between",
    nargs=2,
    type=click.DateTime(_TIMES),
    metavar="FROM UNTIL",
    help="Only ranges that got their status in between, in UTC.",
)
@click.option("--matching", metavar="TEXT", help="Only ranges whose error has this text in it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be replayed, which is the default.")
@click.option("--yes", is_flag=True, help="Replay it.")
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
def replay(
    file: Path,
    identifiers: tuple[str, ...],
    between: tuple[datetime, datetime] | None,
    matching: str | None,
    transform: Path | None,
    limit: float | None,
    chunk: int,
    name: str | None,
    state: Path,
    secrets: Path,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Land records that the stream of FILE has in quarantine, each once, while the stream runs or rests.

    The ranges are read again in exactly their bounds, the earliest first, and go through the stream's transform as FILE has it
    now, or through the SQL of --transform. Rows and the range's status land in one transaction; the stream's positions stay
    where they are. A record that fails again stays in quarantine, and what stands beside it lands. What retention took is
    recorded as lost. The next replay continues one that was ended or killed, and takes the place of one that still runs.

    Without --yes nothing is changed. Exit status 1 if something that was asked for was not landed, or would not be.
    """
    if yes and dry_run:
        raise click.UsageError("--yes and --dry-run cannot be combined; leave one out.")
    stream = with_transform(choose_stream(file, name), transform)
    require_replayable(stream.spec, stream.stream_id)
    opened = open_stream(stream, state, secrets, read_only=True)
    source = source_address(stream.spec.source, functools.partial(read_secret, secrets)).open()
    candidates = examined(opened, source, chosen(opened, identifiers, between, matching))
    _show(stream, candidates)
    ready = [RangeKey.of(candidate.kept.row) for candidate in candidates if candidate.refusal is None]
    all_ready = len(ready) == len(candidates)
    if not yes:
        if ready:
            click.echo("Nothing was changed; --yes replays it.")
        sys.exit(0 if all_ready else 1)
    if not ready:
        sys.exit(0 if all_ready else 1)
    if find_spec("pyspark") is None:
        raise ExtraMissing.of("pyspark")  # it is a process of its own: told before anything is begun
    report = run_replay(opened, secrets, ready, most_records=chunk, records_per_second=limit)
    _tell(report)
    sys.exit(0 if all_ready and report.problem is None and not report.told else 1)


def with_transform(stream: Stream, file: Path | None) -> Stream:
    """Return the stream with the SQL of a file for its transform, or as it is without one.

    Raises:
        TransformUnreadable: if the file is not there, or holds no SQL.
    """
    if file is None:
        return stream
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise TransformUnreadable(
            f"The transform {file} cannot be read ({problem}); name a file with a SELECT over the view source."
        ) from problem
    if not 0 < len(text.strip()) <= _MOST_SQL:
        raise TransformUnreadable(
            f"The transform {file} is empty or longer than {_MOST_SQL} characters; it takes a SELECT over the view source."
        )
    spec = StreamSpec.model_validate({**stream.spec.differences(), "transform": {"sql": text}})
    return stream.model_copy(update={"spec": spec})


def chosen(
    opened: LocalStream,
    identifiers: Sequence[str],
    between: tuple[datetime, datetime] | None,
    matching: str | None,
) -> list[RecordedFailure]:
    """Return the ranges that are asked for, earliest first; those that are named by their ids whatever their status is.

    Raises:
        UnknownFailure: if there is no range with an id.
    """
    if identifiers:
        asked = AskedLedger(opened.stream, opened.ledger)
        found = [find_failure(asked, identifier, tuple(FailureStatus)) for identifier in dict.fromkeys(identifiers)]
    else:
        found = list(opened.ledger.kept_failures(opened.stream.stream_id, HELD, None, _MOST_RANGES))
    if between is not None:
        begin, end = (moment.replace(tzinfo=UTC) for moment in between)
        found = [kept for kept in found if begin <= kept.changed_at < end]
    if matching is not None:
        found = [kept for kept in found if matching.casefold() in kept.row.error.casefold()]
    return sorted(found, key=lambda kept: RangeKey.of(kept.row))


def examined(opened: LocalStream, source: SourceCheck, found: Sequence[RecordedFailure]) -> list[Candidate]:
    """Return what ledger and source say of each range, in the order given."""
    view = opened.ledger.view(opened.stream.stream_id)
    life = "" if view is None else view.stream.life
    refused = {kept.identifier: why_not(kept.row, life) for kept in found}
    asked = [kept for kept in found if refused[kept.identifier] is None]
    told = {kept.identifier: Candidate(kept, refused[kept.identifier]) for kept in found}
    for kept_of_round in _rounds(asked):
        told |= {it.kept.identifier: it for it in _examined(source, kept_of_round)}
    return list(told.values())


def _rounds(found: Sequence[RecordedFailure]) -> list[list[RecordedFailure]]:
    """Return the ranges in groups that have one of each partition: a source is asked once for each group."""
    rounds: list[list[RecordedFailure]] = []
    places: Counter[Partition] = Counter()
    for kept in found:
        place = places[kept.row.partition]
        places[kept.row.partition] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(kept)
    return rounds


def _examined(source: SourceCheck, asked: Sequence[RecordedFailure]) -> Iterator[Candidate]:
    try:
        facts = facts_of(source, [kept.row for kept in asked])
    except OriginMissing as problem:
        if len(asked) == 1:
            yield Candidate(asked[0], str(problem))
        else:
            for kept in asked:
                yield from _examined(source, [kept])
        return
    for kept in asked:
        yield _candidate(kept, finding_of(kept.row, facts))


def _candidate(kept: RecordedFailure, finding: Finding) -> Candidate:
    match finding:
        case Held():
            return Candidate(kept)
        case Gone(until_offset=until):
            return Candidate(kept, lost=until - kept.row.from_offset)
        case OfAnother(words=words):
            return Candidate(kept, words)
        case _:
            assert_never(finding)


def _show(stream: Stream, candidates: Sequence[Candidate]) -> None:
    if not candidates:
        click.echo(f"No range of {stream.stream_id} that was asked for is in quarantine.")
        return
    table = Table(Column("id", overflow="fold"), *_COLUMNS[1:-1], Column("source", overflow="fold"), box=None)
    table.pad_edge = False
    for candidate in candidates:
        row = candidate.kept.row
        since = candidate.kept.changed_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        told = (
            *(candidate.kept.identifier, row.partition.origin, row.partition.key, row.from_offset, row.until_offset),
            *(row.offset_count, row.status, since, one_line(candidate.words, 300)),
        )
        # What a server or a record said is text, never the markup that a table would take it for.
        table.add_row(*(Text(str(value)) for value in told))
    console_of_output().print(table)
    ready = [candidate for candidate in candidates if candidate.refusal is None]
    records, lost = sum(it.kept.row.offset_count for it in ready), sum(it.lost for it in ready)
    taken = sum(it.kept.row.status is FailureStatus.REPLAYING for it in ready)
    click.echo(
        f"{len(ready)} of {len(candidates)} ranges can be replayed: {records - lost} records"
        + (f", and {lost} that the source no longer holds" if lost else "")
        + (f"; {taken} of them were taken by another replay, which then lands no more of them" if taken else "")
        + "."
    )


def _tell(report: ReplayReport) -> None:
    click.echo(
        f"Landed {report.landed} records ({report.rows} rows); {report.failed} failed again, {report.lost} are lost."
    )
    for sentence in report.told:
        click.echo(one_line(sentence, 1000), err=True)
    if report.problem is not None:
        click.echo(one_line(report.problem, 2000), err=True)
