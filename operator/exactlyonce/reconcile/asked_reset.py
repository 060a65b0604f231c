"""What a person asks for with `exactlyonce offsets reset`, as the annotation carries it. Performs no I/O.

The request names the stream's life, the batch that had landed when it was made, and all positions as they were then. So it
takes effect once: a reset gives the stream another landed batch, and so does whatever lands in between. docs/adr/0040.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.bounded_text import one_line
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import (
    BatchNumber,
    MalformedPositions,
    OffsetRange,
    Partition,
    Positions,
    Ranges,
)

MOST_CHARACTERS_OF_WHY = 500
MOST_CHARACTERS_OF_BY = 200


class ResetMalformed(ValueError):
    """A text is not what `AskedReset.to_json` renders."""


@dataclass(frozen=True, slots=True)
class AskedReset:
    """Set the positions from `before` to `after`, where `batch` is the batch that landed last in this `life` of the stream.

    Both name the same partitions. `keeps_skipped`: what is skipped goes into quarantine, from where it may be replayed; else it
    is recorded as lost. `by`, `at` and `message` (why) are recorded as the person who asked gave them. `load` names the load
    that the sink had and the ledger did not know then: a reset that was asked for without knowing of one has no effect on it.
    """

    life: str
    batch: BatchNumber
    before: Positions
    after: Positions
    keeps_skipped: bool
    by: str
    at: datetime
    message: str
    load: str = ""

    def stands_in(self, ledger: LedgerView) -> bool:
        """Whether the stream still stands where it stood when this was asked for, as far as its landed batch tells."""
        found = ledger.stream.loads.found
        stands = (ledger.stream.life, ledger.stream.landed_batch, "" if found is None else found.name)
        return (self.life, self.batch, self.load) == stands

    @property
    def skipped(self) -> Ranges:
        """What the stream leaves out: in each partition that is set forward, the records between."""
        return _between(self.before, self.after)

    @property
    def repeated(self) -> Ranges:
        """What the stream reads again: in each partition that is set back, the records between."""
        return _between(self.after, self.before)

    @property
    def moved(self) -> Positions:
        """The new positions of the partitions that are set anywhere else."""
        return Positions({key: position for key, position in self.after.items() if position != self.before[key]})

    @property
    def words(self) -> str:
        """Who asked, when and why, as the ledger keeps it."""
        return f"{self.by} asked for it at {self.at.isoformat(timespec='seconds')}: {self.message}"

    def to_json(self) -> str:
        """Render it as one line."""
        document = {
            "life": self.life,
            "batch": self.batch,
            "before": json.loads(self.before.to_json()),
            "after": json.loads(self.after.to_json()),
            "keepSkipped": self.keeps_skipped,
            "by": self.by,
            "at": self.at.isoformat(),
            "message": self.message,
            **({"load": self.load} if self.load else {}),
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> AskedReset:
        """Parse what `to_json` renders; anybody who may annotate a stream may have written it.

        Raises:
            ResetMalformed: if it is something else.
        """
        try:
            found = parse_json(text, names_once=True)
        except JsonRefused as problem:
            raise ResetMalformed(f"it is {problem}") from None
        if not isinstance(found, dict):
            raise ResetMalformed("it is not a JSON object")
        texts = dict.fromkeys(("life", "by", "at", "message"), str)
        kinds = {**texts, "batch": int, "before": dict, "after": dict, "keepSkipped": bool}
        kinds |= {"load": str} if "load" in found else {}
        wrong = [name for name, kind in kinds.items() if type(found.get(name)) is not kind]
        if wrong:
            raise ResetMalformed(f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} missing or of another type")
        try:
            before, after = (Positions.from_json(json.dumps(found[name])) for name in ("before", "after"))
            at = datetime.fromisoformat(found["at"])
        except MalformedPositions as problem:
            raise ResetMalformed(str(problem)) from None
        except ValueError:
            raise ResetMalformed("at is not a time") from None
        if before.keys() != after.keys():
            raise ResetMalformed("before and after do not name the same partitions")
        by, message = one_line(found["by"], MOST_CHARACTERS_OF_BY), one_line(found["message"], MOST_CHARACTERS_OF_WHY)
        batch, load = BatchNumber(found["batch"]), found.get("load", "")
        return cls(found["life"], batch, before, after, found["keepSkipped"], by, at, message, load)


def to_be_reset(text: str | None, ledger: LedgerView | None) -> AskedReset | None:
    """Return what is asked for of a stream that stands where it stood when that was asked for; None where nothing is.

    Raises:
        ResetMalformed: if the text is something else.
    """
    if not text or ledger is None or ledger.stream.landed_batch is None:
        return None
    asked = AskedReset.from_json(text)
    return asked if asked.stands_in(ledger) else None


def looked_for(text: str | None, ledger: LedgerView | None) -> AskedReset | None:
    """Return the reset for which an observation looks; None also for other text, which the decision refuses."""
    try:
        return to_be_reset(text, ledger)
    except ResetMalformed:
        return None


def last_offsets(asked: AskedReset) -> dict[Partition, int]:
    """Return the offset of the last record before each new position, where positions count records."""
    return {key: position - 1 for key, position in asked.moved.items() if position > 0}


def _between(start: Positions, end: Positions) -> Ranges:
    return Ranges({key: OffsetRange(start[key], end[key]) for key in start if start[key] < end[key]})
