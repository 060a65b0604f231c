"""What a StreamReplay has to do that lands ranges into another table; the record of the backfill says what has landed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exactlyonce.api.replayed_ranges import AskedRanges
from exactlyonce.api.stream_replay_status import ShownRange
from exactlyonce.control.replay_work import DryRun, FailureWork, Found, GivenWork, LetterWork, Subject, Work, resolved
from exactlyonce.launch.asked_ranges import AskedRange, Tally, tally_backfill
from exactlyonce.launch.backfill import BackfillOrder, into_table, require_origins, require_past, rows_of
from exactlyonce.launch.chosen_ranges import TALLY_OF_NOTHING_KNOWN, looked_up_by_process
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, backfill_of, with_transform
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.reconcile.replay_choice import NOTHING_BETWEEN

LOOKED_UP_LATER = (
    "Only the process of the replay can tell what lies in these ranges. Nothing was changed; create a StreamReplay without "
    "dryRun to land it, or to learn why it cannot be landed."
)


def work_of(subject: Subject) -> Work:
    """Return the work of a replay."""
    rows = rows_of(with_transform(subject.stream, subject.replay).spec)
    asked, order = subject.replay.spec.from_, backfill_of(subject.replay, rows)
    if asked.failures is not None:
        return FailureWork(subject, asked.failures)
    if asked.dead_letters is not None:
        return LetterWork(subject, asked.dead_letters)
    assert asked.ranges is not None, "exactly one is given"
    return GivenWork(subject, asked.ranges) if order is None else BackfillWork(subject, asked.ranges, order)


@dataclass(frozen=True)
class ShownPart:
    """A part of a backfill, as a dry run shows it."""

    row: FailureRow

    def rendered(self) -> ShownRange:
        """Return it as the status has it."""
        found = "to be landed" if self.row.status in HELD else "nothing is left to be done"
        return ShownRange(
            id=str(RangeKey.of(self.row)), records=self.row.offset_count, status=str(self.row.status), found=found
        )


@dataclass(frozen=True)
class BackfillWork:
    """Ranges that land into another table."""

    subject: Subject
    asked: AskedRanges
    order: BackfillOrder

    def found(self) -> Found:
        """Return what is asked for; the first attempt carries the ranges, and its process records them before it reads any."""
        into_table(self.subject.stream.spec, self.order.table)
        known = self._known()
        asked = self._asked(known)
        is_nothing = not asked and not self._is_looked_up_later(known)
        return Found(self._counted(asked, known), ReplayOrders(asked, ()), NOTHING_BETWEEN if is_nothing else None)

    def ended(self, report: ReplayReport | None) -> Tally:
        """Return what the record of the backfill says; a process that came to its end has compared its order with it."""
        known = self._known(was_compared=report is not None and report.problem is None)
        return self._counted(self._asked(known), known)

    def running(self) -> Tally:
        """Return what the record of the backfill says; nothing is compared, since that is what the process itself does.

        Its order is of when it was created, and the stream may have another transform by now.
        """
        known = self._known(was_compared=True)
        return self._counted(self._asked(known), known)

    def dry_run(self) -> DryRun:
        """Return what is left of the backfill, or what a new one would land; the source is asked whether it holds that."""
        stream, known = self.subject.stream, self._known()
        into_table(stream.spec, self.order.table)
        asked = self._asked(known)
        if self._is_looked_up_later(known):
            return DryRun(self._counted(asked, known), (), LOOKED_UP_LATER, is_whole=True)
        rows = self.subject.stores.parts(stream, [it.span for it in asked]) if known is None else known.parts
        left = sum(row.offset_count for row in rows if row.status in HELD)
        counted = self._counted(asked, known)
        what = "ranges" if counted.counts_no_records else "records"
        message = (
            f"{left} of {counted.records.asked} {what} are to be landed into {self.order.table}. Nothing was changed; "
            "create a StreamReplay without dryRun to land them."
        )
        return DryRun(
            counted, tuple(ShownPart(row) for row in rows), message if asked else NOTHING_BETWEEN, is_whole=True
        )

    def _is_looked_up_later(self, known: Backfill | None) -> bool:
        """Whether only the process of the first attempt can tell what the backfill is of."""
        return known is None and looked_up_by_process(self.subject.stream.spec.source)

    def _known(self, *, was_compared: bool = False) -> Backfill | None:
        stream_id = self.subject.stream.stream_id
        return self.subject.ledger.backfill(stream_id, self.order, was_compared=was_compared)

    def _asked(self, known: Backfill | None) -> tuple[AskedRange, ...]:
        if known is not None:
            return tuple(AskedRange.of(row) for row in known.parts)
        if self._is_looked_up_later(known):
            if self.asked.by_timestamp is not None:
                require_past(self.asked.by_timestamp.until, self.subject.now)
            return ()
        carried = self.subject.carried()
        return self._resolved() if carried is None else carried

    def _resolved(self) -> tuple[AskedRange, ...]:
        """Return what is asked for as the source has it, with the ids of its topics: the process compares them with its own."""
        subject, moments = self.subject, self.asked.by_timestamp
        if moments is not None:
            require_past(moments.until, subject.now)
        found = resolved(subject, self.asked, None)
        rows = subject.stores.parts(subject.stream, [it.span for it in found])
        require_origins(rows, {it.partition.origin: it.origin_id for it in found})
        return tuple(replace(AskedRange.of(row), origin_id=row.origin_id) for row in rows)

    def _counted(self, asked: tuple[AskedRange, ...], known: Backfill | None) -> Tally:
        if self._is_looked_up_later(known):
            return TALLY_OF_NOTHING_KNOWN
        return tally_backfill(asked, None if known is None else known.parts)
