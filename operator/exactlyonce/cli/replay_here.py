"""A replay by a process of this machine: what was asked for is shown, and with `yes` it is landed."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from exactlyonce.api.replay import require_replayable
from exactlyonce.api.resource import Stream
from exactlyonce.assembly import source_address
from exactlyonce.bounded_text import one_line
from exactlyonce.cli.asked_replay import DEAD_LETTERS, AskedReplay
from exactlyonce.cli.backfill import AskedBackfill, ReplayLimits, run_backfill
from exactlyonce.cli.commands import ExtraMissing
from exactlyonce.cli.given_ranges import replayed_by, taken_from
from exactlyonce.cli.letter_replay import letter_candidates, ready_letters, show_letters
from exactlyonce.cli.local_replay import run_replay, tell
from exactlyonce.cli.local_stream import LocalStream, open_stream
from exactlyonce.cli.replay_candidates import chosen, examined, show_ranges
from exactlyonce.launch.secrets import read_secret
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.letters import LetterKey
from exactlyonce.ledger.replay_rules import RangeKey


def replay_here(
    stream: Stream, asked: AskedReplay, state: Path, secrets: Path, *, yes: bool, how: str = "--yes"
) -> int:
    """Show what would be replayed of a stream, which has the transform that was asked for; with `yes` replay it.

    `how` is what a person gives to have it replayed.

    Returns the exit status: 1 if something that was asked for was not landed, or would not be.

    Raises:
        ReplayRefused: if the stream takes no such replay.
        ExactlyOnceError: as the stores, and the ranges that were given, say.
    """
    require_replayable(
        stream.spec, stream.stream_id, replayed_by(asked.kind, asked.by_timestamp, asked.into, asked.given)
    )
    opened = open_stream(stream, state, secrets, read_only=True)
    if asked.into is not None and asked.backfill is not None:
        source = functools.partial(source_address, secrets=functools.partial(read_secret, secrets))
        wanted = AskedBackfill(asked.into, asked.backfill, asked.given, asked.by_timestamp)
        limits = ReplayLimits(asked.chunk, asked.limit)
        return run_backfill(opened, secrets, wanted, lambda it: source(it).open(), limits, yes=yes, how=how)
    ranges: list[RangeKey] = []
    letters: list[LetterKey] = []
    if asked.kind == DEAD_LETTERS:
        found = letter_candidates(opened, asked.identifiers, asked.between, asked.matching)
        show_letters(stream.stream_id, found)
        letters = ready_letters(found)
        all_ready = len(letters) == len(found)
    else:
        ranges, all_ready = _shown_ranges(opened, asked, secrets, yes=yes)
    if not yes and (ranges or letters):
        click.echo(f"Nothing was changed; {how} replays it.")
    if not yes or not (ranges or letters):
        return 0 if all_ready else 1
    if find_spec("pyspark") is None:
        raise ExtraMissing.of("pyspark")  # it is a process of its own: told before anything is begun
    report = run_replay(opened, secrets, ranges, letters, most_records=asked.chunk, records_per_second=asked.limit)
    tell(report, stream.spec.sink.spec)
    return 0 if all_ready and report.problem is None and not report.told else 1


def _shown_ranges(opened: LocalStream, asked: AskedReplay, secrets: Path, *, yes: bool) -> tuple[list[RangeKey], bool]:
    """Show the ranges, and return those that can be replayed, and whether these are all of them."""
    stream = opened.stream
    address = functools.partial(source_address, secrets=functools.partial(read_secret, secrets))
    refused = list[str]()
    if asked.given or asked.by_timestamp:
        positions = asked.given or asked.by_timestamp or ()
        taken = taken_from(opened, positions, lambda source: address(source).open(), yes=yes)
        kept, refused = [RecordedFailure(row, datetime.now(UTC)) for row in taken.rows], [*taken.refused]
    else:
        kept = chosen(opened, asked.identifiers, asked.between, asked.matching)
    candidates = examined(opened, address(stream.spec.source).open(), kept)
    show_ranges(stream, candidates)
    for sentence in refused:
        click.echo(one_line(sentence, 500), err=True)
    ranges = [RangeKey.of(candidate.kept.row) for candidate in candidates if candidate.refusal is None]
    return ranges, len(ranges) == len(candidates) and not refused
