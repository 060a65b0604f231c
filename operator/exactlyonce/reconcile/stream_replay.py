"""What follows on each state of a StreamReplay: its status before an attempt, and after one has ended. Performs no I/O.

A status is written before each act, and every act can be repeated: an attempt is recorded before its ConfigMap and its pod are
created, and its outcome is counted from the ledger, which a report may be missing of, before the status says that it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from exactlyonce.api.stream_replay_status import REPLAY_TRANSITIONS, Counts, ReplayPhase, ReplayStatus
from exactlyonce.bounded_text import one_line
from exactlyonce.launch.asked_ranges import Amount, Kind, Tally
from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.replay_document import ReplayReport

SUSPENDED = "The stream is suspended; what is left is replayed when it is resumed."
SINK_CHANGED = (
    "The stream's sink was changed since the attempt began; the next attempt is made for the sink as it is now."
)

NOT_STARTED = (
    "The stream's sink was changed, and the stream has not been started with it yet; the replay waits for that."
)

MOST_ENDINGS = 4
"""So many attempts in a row may end without landing anything; then something other than an accident ends them."""

_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=2)
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended: its report where it left one, what its pod's record says, and why it was called off, if it was."""

    report: ReplayReport | None
    detail: str
    called_off: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end by itself."""
        return self.report is not None and self.report.problem is None

    @property
    def was_refused(self) -> bool:
        """Whether trying again changes nothing."""
        return self.report is not None and self.report.ending == Ending.REFUSED

    @property
    def words(self) -> str:
        """What ended it before it was done."""
        problem = None if self.report is None else self.report.problem
        return one_line(self.detail if problem is None else problem, 1000)


def moved(status: ReplayStatus, phase: ReplayPhase, message: str, now: datetime, **changes: Any) -> ReplayStatus:
    """Return the status in a phase; the same one is no transition."""
    assert phase is status.phase or phase in REPLAY_TRANSITIONS[status.phase], f"{status.phase} to {phase}"
    ended = {"ended_at": now.replace(microsecond=0), "retry_at": None} if phase.is_final else {}
    return status.model_copy(update={"phase": phase, "message": message, **ended, **changes})


def recorded(status: ReplayStatus, stream_uid: str, counted: Tally, now: datetime) -> ReplayStatus:
    """Return the status before the next attempt's ConfigMap and pod are created.

    An attempt that follows one that landed nothing is no progress: who waits for the replay has waited since then.
    """
    begun = _counted(status, counted, now)
    return moved(
        begun,
        ReplayPhase.RUNNING,
        running_words(begun),
        now,
        attempt=status.attempt + 1,
        stream_uid=stream_uid,
        pod_name=None,
        no_progress_message=None,
        held_at_start=counted.records.put_back,
        landed_at_start=counted.records.replayed,
        progressed_at=begun.progressed_at or now.replace(microsecond=0),
        retry_at=None,
        started_at=status.started_at or now.replace(microsecond=0),
    )


def counted_while_running(status: ReplayStatus, counted: Tally, now: datetime) -> ReplayStatus:
    """Return the status with what has landed by now; a moment beside it says when that was last another number."""
    at_start = {
        "held_at_start": _held_at_start(status, counted.records.put_back),
        "landed_at_start": _landed_at_start(status),
    }
    return _counted(status.model_copy(update=at_start), counted, now)


def _counted(status: ReplayStatus, counted: Tally, now: datetime) -> ReplayStatus:
    known = status.ranges if counted.counts_no_records else status.records
    before = 0 if known is None else known.replayed
    moves = counted.records.replayed > before
    changes = {"progressed_at": now.replace(microsecond=0)} if moves else {}
    return status.model_copy(update={**_counts(counted), **changes})


def running_words(status: ReplayStatus) -> str:
    """Return what the message says while an attempt runs."""
    records, ranges = status.records, status.ranges or Counts()
    if records is None and ranges.put_back:
        return f"{_ranges(ranges.put_back)} {'is' if ranges.put_back == 1 else 'are'} being replayed."
    if records is None or records.put_back == 0:
        return "What was asked for is being looked for and replayed."
    are = "is" if records.put_back == 1 else "are"
    return f"{_records(records.put_back)} of {_ranges(ranges.put_back)} {are} being replayed."


def after(status: ReplayStatus, end: AttemptEnd, counted: Tally, now: datetime) -> ReplayStatus:
    """Return the status after an attempt has ended, by what the ledger says of the ranges that were asked for."""
    told = () if end.report is None else tuple(one_line(it, 1000) for it in end.report.told[:_MOST_PROBLEMS])
    counted_now = _counted(status, counted, now)
    changes: dict[str, Any] = {**_counts(counted), "problems": told, "progressed_at": counted_now.progressed_at}
    left = counted.records.put_back
    if counted.is_done or end.is_complete:
        return finished(status, counted, now, **changes)
    if end.called_off is not None:  # by us, or by the ledger for the same reason: it tells nothing of the next attempt
        return moved(status, ReplayPhase.PENDING, end.called_off, now, **{**changes, "progressed_at": None})
    if end.was_refused:
        phase = ReplayPhase.FAILED if counted.records.replayed else ReplayPhase.REFUSED
        return moved(status, phase, f"{end.words}.", now, **changes)
    has_landed = counted.records.replayed > _landed_at_start(status) or left < _held_at_start(status, left)
    endings = 1 if has_landed else status.endings + 1
    changes["endings"] = endings
    if endings >= MOST_ENDINGS:
        landing = "a whole range" if counted.counts_no_records else "anything"
        message = (
            f"{endings} attempts in a row ended without landing {landing}; the latest: {end.words}. {outcome(counted)}"
        )
        return moved(status, ReplayPhase.FAILED, message, now, **changes)
    wait = min(_FIRST_WAIT * 2 ** (endings - 1), _LONGEST_WAIT)
    message = f"Attempt {status.attempt} ended before it was done, and the next one waits: {end.words}."
    return moved(status, ReplayPhase.PENDING, message, now, retry_at=now + wait, **changes)


def _held_at_start(status: ReplayStatus, left: int) -> int:
    """What was in quarantine when the attempt was recorded; an earlier release counted it then, and not while it ran.

    So `records` says it until the first count of this release, which keeps what it said.
    """
    if status.held_at_start is not None:
        return status.held_at_start
    return left if status.records is None else status.records.put_back


def _landed_at_start(status: ReplayStatus) -> int:
    """What had landed when the attempt was recorded; an earlier release kept it in `records` alone, as above."""
    if status.landed_at_start is not None:
        return status.landed_at_start
    return 0 if status.records is None else status.records.replayed


def finished(status: ReplayStatus, counted: Tally, now: datetime, **changes: Any) -> ReplayStatus:
    """Return the status when nothing more is done: it succeeded where everything has landed or is read again."""
    told = () if counted.kind is Kind.FAILURES else changes.get("problems", ())
    # What nobody has begun of a backfill has not landed: its record is the only place that says what has.
    not_begun = counted.records.read_again if counted.kind is Kind.BACKFILL else 0
    is_whole = counted.records.put_back == counted.records.lost == not_begun == 0 and not told
    phase = ReplayPhase.SUCCEEDED if is_whole else ReplayPhase.FAILED
    words = f"{outcome(counted)} {told[0].rstrip('.')}." if told else outcome(counted)
    if counted.kind is Kind.DEAD_LETTERS and counted.records.asked == 0 and not told:
        words = "No dead letter that was asked for is to be replayed."
    return moved(status, phase, words, now, **{**_counts(counted), **changes})


_PARTS: Mapping[Kind, tuple[str, ...]] = {
    Kind.FAILURES: (
        "in quarantine still",
        "lost, since the source no longer holds them, or given up by a person",
        "left to the stream, which reads them again itself",
    ),
    Kind.DEAD_LETTERS: ("kept as dead letters still",),
    Kind.BACKFILL: (
        "not landed yet, and another StreamReplay with this `backfill` name tries again",
        "lost, since the source does not hold them any more",
        "not begun",
    ),
    Kind.RANGES: (
        "in quarantine still",
        "lost, or given up for another reason",
        "left alone, since they have landed, or the stream lands them itself",
    ),
}
"""What is said of what is put back, of what is lost, and of the rest, as far as there can be some."""


def outcome(counted: Tally) -> str:
    """Return in one sentence what became of the records that were asked for."""
    amount = counted.records
    counts = zip((amount.put_back, amount.lost, amount.read_again), _PARTS[counted.kind], strict=False)
    rest = "".join(f"; {count} {'is' if count == 1 else 'are'} {words}" for count, words in counts if count)
    more = (
        f" One replay takes {counted.ranges.asked} ranges; another one takes what else is in quarantine."
        if counted.kind is Kind.FAILURES and counted.fills_one_replay
        else ""
    )
    named = f" In quarantine: {', '.join(counted.held)}." if counted.held else ""
    have = "has" if amount.replayed == 1 else "have"
    asked = _ranges(amount.asked) if counted.counts_no_records else _records(amount.asked)
    return f"{amount.replayed} of {asked} {have} landed{rest}.{named}{more}"


def _counts(counted: Tally) -> dict[str, Counts | None]:
    records = None if counted.counts_no_records else _of(counted.records)
    return {"ranges": _of(counted.ranges), "records": records}


def _of(amount: Amount) -> Counts:
    return Counts(asked=amount.asked, replayed=amount.replayed, put_back=amount.put_back, lost=amount.lost)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _ranges(count: int) -> str:
    return "1 range" if count == 1 else f"{count} ranges"
