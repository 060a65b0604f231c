"""Which dead letters a replay asks for, as its own process finds them: they may be millions, so no document names them."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from exactlyonce.api.stream_replay import AskedLetters
from exactlyonce.bounded_text import one_line, some_of
from exactlyonce.errors import Refused
from exactlyonce.ledger.history import FailureHistory, LetterPlace, RecordedLetter
from exactlyonce.ledger.letters import LetterStatus

MOST_LETTERS = 100_000
"""Of one process of a replay; the next one takes the rest."""

WAITING = (LetterStatus.KEPT, LetterStatus.REPLAYING)
_PAGE, _PAGE_BYTES = 500, 8 << 20
_MOST_CHARACTERS = 16 << 20
_IDENTIFIER = re.compile(r"(.+)/([0-9]{1,40})")


class LettersUnknown(Refused):
    """A replay names dead letters that are not there."""


class LookedTooLong(Refused):
    """What a dry run looks at takes longer than it may."""


def paged_letters(
    ledger: FailureHistory,
    stream_id: str,
    place: LetterPlace | None = None,
    most: int | None = None,
    *,
    contents: bool = False,
) -> Iterator[RecordedLetter]:
    """Yield every dead letter, those at a place, or the first of them; no more than a page of them is in memory.

    A record may be of megabytes, so a page is bounded in bytes as well. Without `contents` keys and values stay where they are.
    """
    after, left = None, most
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = ledger.kept_letters(stream_id, place, after, size, _PAGE_BYTES if contents else None)
        if not page:
            return
        yield from page
        after, left = page[-1].row.key, None if left is None else left - len(page)


def chosen_letters(
    ledger: FailureHistory, stream_id: str, asked: AskedLetters, most: int = MOST_LETTERS
) -> list[RecordedLetter]:
    """Return the dead letters that are asked for, the earliest batches first; those that are named whatever became of them.

    Raises:
        LettersUnknown: if there is none with an id.
        LedgerUnreachable, LedgerRefused: if the ledger does not answer.
    """
    if asked.ids:
        found = _named(ledger, stream_id, asked.ids)
    else:
        found = (it for it in paged_letters(ledger, stream_id) if it.status in WAITING)
    admitted = (it for it in found if asked.admits(it.landed_at, it.row.error))
    return heapq.nsmallest(most, admitted, key=lambda it: (it.row.batch, it.row.key))


@dataclass(frozen=True)
class LettersLookedAt:
    """The letters that are asked for among those that were looked at; `is_all` if there are no others."""

    found: tuple[RecordedLetter, ...]
    looked_at: int
    is_all: bool = True


def letters_looked_at(
    ledger: FailureHistory, stream_id: str, asked: AskedLetters, most: int, may_look: Callable[[], bool]
) -> LettersLookedAt:
    """Return the first of the dead letters that are asked for, for whoever only shows them and serves many.

    At most `most` are looked at, and none once `may_look` says no: there may be any number, each as long as the tenant likes.

    Raises:
        LettersUnknown: if there is none with an id.
        LookedTooLong: if not all that are named could be looked for.
        LedgerUnreachable, LedgerRefused: if the ledger does not answer.
    """
    if asked.ids:
        named = tuple(it for it in _named(ledger, stream_id, asked.ids, may_look) if _is_asked(asked, it))
        return LettersLookedAt(named, len(named))
    found: list[RecordedLetter] = []
    looked_at = characters = 0
    for it in paged_letters(ledger, stream_id):
        if looked_at == most or characters > _MOST_CHARACTERS or (looked_at % _PAGE == 0 and not may_look()):
            return LettersLookedAt(tuple(found), looked_at, is_all=False)
        looked_at += 1
        if it.status in WAITING and _is_asked(asked, it):
            found.append(it)
            characters += len(it.row.error) + len(it.identifier) + len(it.row.origin_id)
    return LettersLookedAt(tuple(found), looked_at)


def _is_asked(asked: AskedLetters, letter: RecordedLetter) -> bool:
    return asked.admits(letter.landed_at, letter.row.error)


def _named(
    ledger: FailureHistory, stream_id: str, ids: tuple[str, ...], may_look: Callable[[], bool] = lambda: True
) -> Iterator[RecordedLetter]:
    found: dict[str, list[RecordedLetter]] = {}
    for identifier in ids:
        if not may_look():
            raise LookedTooLong(
                f"The ledger answers too slowly: {len(found)} of the {len(ids)} dead letters that are named were found in "
                "time. Name fewer, or create the StreamReplay without dryRun"
            )
        found[identifier] = _with_id(ledger, stream_id, identifier)
    absent = [one_line(identifier) for identifier, letters in found.items() if not letters]
    if absent:
        raise LettersUnknown(
            f"{stream_id} has no dead letter {some_of(absent)}; `exactlyonce dead-letters` lists those it has."
        )
    for letters in found.values():
        yield from letters


def _with_id(ledger: FailureHistory, stream_id: str, identifier: str) -> list[RecordedLetter]:
    written = _IDENTIFIER.fullmatch(identifier)
    if written is None:
        return []
    place = LetterPlace.of(written[1], int(written[2]))
    return [it for it in paged_letters(ledger, stream_id, place) if it.identifier == identifier]
