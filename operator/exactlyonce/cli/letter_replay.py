"""The dead letters that `exactlyonce replay --from dead-letters` would land, as a table; and why others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import click

from exactlyonce.bounded_text import one_line
from exactlyonce.cli.asked_ledger import AskedLedger
from exactlyonce.cli.consoles import print_table
from exactlyonce.cli.dead_letters import find_letters, letters, require_letters
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.launch.asked_letters import MOST_LETTERS, WAITING
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterKey, LetterStatus, why_letter_stays

_MOST_SHOWN = 200
_COLUMNS = ("id", "batch", "landed", "bytes", "error", "replay")


@dataclass(frozen=True)
class LetterCandidate:
    """A dead letter that was asked for; `refusal` says why it cannot be replayed."""

    letter: RecordedLetter
    refusal: str | None


def letter_candidates(
    opened: LocalStream,
    identifiers: Sequence[str],
    between: tuple[datetime, datetime] | None,
    matching: str | None,
) -> list[LetterCandidate]:
    """Return the dead letters that are asked for, earliest batches first; those that are named whatever became of them.

    Without ids they are those that no replay has landed and that the stream does not read again.

    Raises:
        UnknownLetter: if there is no letter with an id.
        NoDeadLetters: if the sink keeps none.
    """
    asked = AskedLedger(opened.stream, opened.ledger)
    require_letters(asked)
    if identifiers:
        found = [letter for identifier in dict.fromkeys(identifiers) for letter in find_letters(asked, identifier)]
    else:
        waiting = (letter for letter in letters(asked, contents=False) if letter.status in WAITING)
        found = [letter for letter in waiting if _is_asked_for(letter, between, matching)]
    view = opened.ledger.view(opened.stream.stream_id)
    life = "" if view is None else view.stream.life
    return [
        LetterCandidate(letter, why_letter_stays(letter.row, letter.status, life))
        for letter in islice(sorted(found, key=lambda it: (it.row.batch, it.row.key)), MOST_LETTERS)
        if _is_asked_for(letter, between, matching)
    ]


def _is_asked_for(letter: RecordedLetter, between: tuple[datetime, datetime] | None, matching: str | None) -> bool:
    if matching is not None and matching.casefold() not in letter.row.error.casefold():
        return False
    if between is None:
        return True
    begin, end = (moment.replace(tzinfo=UTC) for moment in between)
    return begin <= letter.landed_at < end


def ready_letters(candidates: Sequence[LetterCandidate]) -> list[LetterKey]:
    """Return the keys of what can be replayed."""
    return [it.letter.row.key for it in candidates if it.refusal is None]


def show_letters(stream_id: str, candidates: Sequence[LetterCandidate]) -> None:
    """Print what was asked for, the first of it as a table."""
    if not candidates:
        click.echo(f"No dead letter of {stream_id} that was asked for is to be replayed.")
        return
    rows = []
    for candidate in candidates[:_MOST_SHOWN]:
        letter = candidate.letter
        landed = letter.landed_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        size = "-" if letter.value_bytes is None else letter.value_bytes
        error, replay = one_line(letter.row.error, 100), one_line(candidate.refusal or "its bytes are kept", 300)
        told = (letter.identifier, letter.row.batch, landed, size, error, replay)
        rows.append(dict(zip(_COLUMNS, told, strict=True)))
    print_table(_COLUMNS, rows, folded="replay")
    if len(candidates) > _MOST_SHOWN:
        click.echo(f"These are the first {_MOST_SHOWN}; exactlyonce dead-letters shows the others.")
    ready = [it for it in candidates if it.refusal is None]
    taken = sum(it.letter.status is LetterStatus.REPLAYING for it in ready)
    click.echo(
        f"{len(ready)} of {len(candidates)} dead letters can be replayed"
        + (f"; {taken} of them were taken by another replay, which then lands no more of them" if taken else "")
        + (f"; no more than {MOST_LETTERS} at once" if len(candidates) >= MOST_LETTERS else "")
        + "."
    )
