"""What one StreamReplay has to do: what it asks for, what became of that, and what its next attempt is given. Blocking.

There is one kind of work for each kind of `spec.from`. Ranges of failures are chosen here, and each attempt carries them. Dead
letters may be millions, and ranges given by hand are divided by the ledger's own rules: of those an attempt carries what was
asked for, and its process finds out by itself (docs/adr/0044).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from exactlyonce.api.replayed_ranges import AskedRanges
from exactlyonce.api.resource import Stream
from exactlyonce.api.stream_replay import AskedLetters, FailedRanges, StreamReplay
from exactlyonce.api.stream_replay_status import ShownRange
from exactlyonce.control.replay_ledger import ReplayLedger
from exactlyonce.control.replay_refusals import RangesForgotten
from exactlyonce.control.replay_stores import ReplayStores
from exactlyonce.launch.asked_ranges import (
    NO_EFFECT,
    AskedRange,
    Tally,
    left_of,
    tally,
    tally_given,
    tally_landing,
    tally_letters,
)
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, span_of, token_of
from exactlyonce.launch.replay_pods import ReplayPods
from exactlyonce.ledger.given_ranges import in_rounds, taken_of
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.letters import why_letter_stays
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile.replay_choice import (
    NOTHING_ASKED,
    NOTHING_BETWEEN,
    ShownLetter,
    batches_of,
    chosen,
    told_of,
    told_of_letters,
)

_NEVER = datetime.min.replace(tzinfo=UTC)
"""Of ranges that are shown as they would be in quarantine; since when is not shown."""
COUNTED = (*HELD, *NO_EFFECT, FailureStatus.REPLAYED)


@dataclass(frozen=True)
class Found:
    """What was asked for and what became of it; `nothing` says so where nothing was, and `orders` are for the next attempt."""

    counted: Tally
    orders: ReplayOrders
    nothing: str | None = None


class Renders(Protocol):
    """What a dry run shows of one range or letter."""

    def rendered(self) -> ShownRange:
        """Return it as the status has it."""
        ...


@dataclass(frozen=True)
class DryRun:
    """What a dry run shows, and in one sentence whether all of it can be replayed."""

    counted: Tally
    shown: tuple[Renders, ...]
    message: str
    is_whole: bool


@dataclass(frozen=True)
class Subject:
    """The replay, the stream, its ledger, and whether an attempt has been given what was asked for."""

    replay: StreamReplay
    uid: str
    stream: Stream
    ledger: ReplayLedger
    stores: ReplayStores
    pods: ReplayPods
    has_begun: bool
    now: datetime

    @property
    def life(self) -> str:
        """The life of the stream, as its ledger has it."""
        row = self.ledger.row(self.stream.stream_id)
        return "" if row is None else row.life

    def carried(self) -> tuple[AskedRange, ...] | None:
        """Return what the latest attempt carries, None where there has been none.

        Raises:
            RangesForgotten: if there has been one, and nothing is left of it.
        """
        asked = self.pods.asked()
        if asked is None and self.has_begun:
            raise RangesForgotten.by(self.replay.metadata.name)
        return asked


class Work(Protocol):
    """What is asked of each kind of work."""

    def found(self) -> Found:
        """Return what is asked for, from what an earlier attempt carries, or for the first one as it is now."""
        ...

    def ended(self, report: ReplayReport | None) -> Tally:
        """Return what became of it, once an attempt has ended.

        Raises:
            RangesForgotten: if nothing says any more what was asked for.
        """
        ...

    def running(self) -> Tally:
        """Return what has become of it while an attempt runs.

        Raises:
            RangesForgotten: as `ended`.
        """
        ...

    def dry_run(self) -> DryRun:
        """Return what would be replayed; nothing is changed."""
        ...


@dataclass(frozen=True)
class FailureWork:
    """Ranges that are in quarantine."""

    subject: Subject
    asked: FailedRanges

    def found(self) -> Found:
        """Return the ranges."""
        asked, rows, _ = self._ranges()
        left = left_of(asked, rows)
        return Found(tally(asked, rows), ReplayOrders(asked, left), None if asked else NOTHING_ASKED)

    def ended(self, report: ReplayReport | None) -> Tally:
        """Return what the ledger says of the ranges."""
        asked = self.subject.pods.asked()
        if asked is None:
            raise RangesForgotten.by(self.subject.replay.metadata.name)
        return tally(asked, self._parts_of(asked))

    def running(self) -> Tally:
        """Return what the ledger says of the ranges."""
        return self.ended(None)

    def dry_run(self) -> DryRun:
        """Return what ledger and source say of the ranges."""
        asked, rows, kept = self._ranges()
        shown = self.subject.stores.shown(self.subject.stream, kept, self.subject.life)
        return DryRun(tally(asked, rows), shown, told_of(shown), all(it.can_be_replayed for it in shown))

    def _ranges(self) -> tuple[tuple[AskedRange, ...], tuple[FailureRow, ...], tuple[RecordedFailure, ...]]:
        """Return what is asked for, what became of it, and of what is chosen now the rows themselves."""
        subject, asked = self.subject, self.subject.carried()
        if asked is not None:
            return asked, self._parts_of(asked), ()
        stream_id, batches = subject.stream.stream_id, batches_of(self.asked)
        kept = subject.ledger.choice(stream_id, HELD if batches is None else tuple(FailureStatus), batches)
        ranges = chosen(self.asked, kept, stream_id, subject.life)
        rows = tuple(it.row for it in ranges)
        return tuple(AskedRange.of(it) for it in rows), rows, ranges

    def _parts_of(self, asked: Sequence[AskedRange]) -> tuple[FailureRow, ...]:
        return self.subject.ledger.parts_of(self.subject.stream.stream_id, COUNTED, asked)


@dataclass(frozen=True)
class LetterWork:
    """Dead letters, which the process of an attempt finds by itself."""

    subject: Subject
    asked: AskedLetters

    def found(self) -> Found:
        """Return what has landed; what is left nobody has looked for yet."""
        return Found(tally_letters(self._landed(), 0), ReplayOrders((), ()))

    def ended(self, report: ReplayReport | None) -> Tally:
        """Return what has landed, and what the process has told of the rest."""
        return tally_letters(self._landed(), 0 if report is None else report.left)

    def running(self) -> Tally:
        """Return what has landed; what is left its process alone knows."""
        return self.ended(None)

    def dry_run(self) -> DryRun:
        """Return the letters, the first of them."""
        subject = self.subject
        looked = subject.ledger.letters(subject.stream.stream_id, self.asked)
        life = subject.life
        shown = tuple(ShownLetter(it, why_letter_stays(it.row, it.status, life)) for it in looked.found)
        counted = tally_letters(0, len(shown))
        return DryRun(
            counted,
            shown,
            told_of_letters(shown, None if looked.is_all else looked.looked_at),
            all(it.can_be_replayed for it in shown),
        )

    def _landed(self) -> int:
        subject = self.subject
        return subject.ledger.replayed_letters(subject.stream.stream_id, token_of(subject.uid))


@dataclass(frozen=True)
class GivenWork:
    """Ranges given by hand, which the process of an attempt takes up by itself."""

    subject: Subject
    asked: AskedRanges

    def found(self) -> Found:
        """Return the ranges; what lies between two moments is resolved here, and the first attempt carries it from then on."""
        given = self.subject.carried()
        asked = self._resolved() if given is None else given
        return Found(self._counted(asked), ReplayOrders(asked, ()), None if asked else NOTHING_BETWEEN)

    def ended(self, report: ReplayReport | None) -> Tally:
        """Return what the ledger says of the ranges."""
        return self._counted(self._carried())

    def running(self) -> Tally:
        """Return what has landed, which the ledger sums; what became of the rest is counted when the attempt has ended."""
        subject, asked = self.subject, self._carried()
        return tally_landing(asked, subject.ledger.replayed_records(subject.stream.stream_id, token_of(subject.uid)))

    def _carried(self) -> tuple[AskedRange, ...]:
        asked = self.subject.pods.asked()
        if asked is None:
            raise RangesForgotten.by(self.subject.replay.metadata.name)
        return asked

    def dry_run(self) -> DryRun:
        """Return what may be landed of the ranges, and why the rest stays."""
        subject, asked = self.subject, self._resolved()
        standing = subject.ledger.standing(subject.stream.stream_id)
        taken = [taken_of(standing, given) for given in in_rounds(it.span for it in asked)]
        rows = [RecordedFailure(row, _NEVER) for it in taken for row in it.rows]
        shown = subject.stores.shown(subject.stream, rows, standing.life)
        refused = [sentence for it in taken for sentence in it.refused] if self.asked.positions is not None else []
        words = " ".join([told_of(shown), *refused[:3]])
        return DryRun(self._counted(asked), shown, words, not refused and all(it.can_be_replayed for it in shown))

    def _counted(self, asked: Sequence[AskedRange]) -> Tally:
        subject = self.subject
        found = subject.ledger.overlaps_of(subject.stream.stream_id, COUNTED, asked, token_of(subject.uid))
        return tally_given(asked, found)

    def _resolved(self) -> tuple[AskedRange, ...]:
        """Return the ranges; where the stream stands is asked for two moments alone."""
        if self.asked.positions is not None:
            return resolved(self.subject, self.asked, None)
        stream_id = self.subject.stream.stream_id
        landed = self.subject.ledger.positions(stream_id)
        if landed is None:
            raise NothingToReplayInto(f"The ledger has no row of {stream_id}; start the stream first.")
        return resolved(self.subject, self.asked, landed)


def resolved(subject: Subject, asked: AskedRanges, landed: Positions | None) -> tuple[AskedRange, ...]:
    """Return the ranges that are given; what lies between two moments as far as `landed`, or to where the source ends now."""
    if asked.positions is not None:
        return tuple(AskedRange.given(*span_of(it)) for it in asked.positions)
    moments = asked.by_timestamp
    assert moments is not None, "exactly one is given"
    between = subject.stores.between(subject.stream, moments.from_, moments.until, landed)
    return tuple(AskedRange.given(*span, origin_id) for span, origin_id in between.spans.items())
