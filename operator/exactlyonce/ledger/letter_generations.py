"""Which generations were published by releases that record where the stream reads again. Performs no I/O.

A release from before dead letters were replayed publishes generations as well, beside tables that are newer than it is: after a
rollback of the operator, or where the init container has its image. It sets the stream back and records nothing. So each
publication leaves a note that names the generation before it, and a letter names the generation in which it was kept. Where a
note between both is missing, nobody knows from where the stream has read again, and the letter is not replayed.

The notes are set-backs of an origin without a name, which no source has; a release that does not know them takes them for what
no letter is of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from exactlyonce.ledger.letters import LetterRow, SetBack
from exactlyonce.positions.ranges import BatchNumber, Partition

_NOTES = ""
_NONE_BEFORE = -1
_SEPARATOR = "/"


def note_of(generation: int, before: int | None, batch: BatchNumber) -> SetBack:
    """Return what a publication records: its generation, the one before, and the batch that it begins with."""
    return SetBack(Partition(_NOTES, generation), _NONE_BEFORE if before is None else before, "", batch)


def is_note(set_back: SetBack) -> bool:
    """Whether it is a note of a generation, and no setting back."""
    return set_back.partition.origin == _NOTES


def known_letter(row: LetterRow, generation: int | None, set_backs: Iterable[SetBack]) -> LetterRow:
    """Return a letter of a stream that is at `generation`, without its life where no note tells what was published since.

    A letter without a life is refused (`letters.why_letter_stays`).
    """
    if row.generation is not None and _is_followed(row.generation, generation, set_backs):
        return row
    return replace(row, life="")


def _is_followed(kept: int, generation: int | None, set_backs: Iterable[SetBack]) -> bool:
    before = {it.partition.key: it.position for it in set_backs if is_note(it)}
    while generation is not None and generation > kept:
        former = before.get(generation)
        generation = former if former is not None and former < generation else None
    return generation == kept


def life_in_generation(life: str, generation: int | None) -> str:
    """Return life and generation as a letter keeps them, in one text."""
    return life if generation is None else f"{life}{_SEPARATOR}{generation}"


def life_and_generation(text: str) -> tuple[str, int | None]:
    """Return the two of a text; no generation where an earlier release has written it."""
    life, _, generation = text.partition(_SEPARATOR)
    return life, int(generation) if generation.isdecimal() else None
