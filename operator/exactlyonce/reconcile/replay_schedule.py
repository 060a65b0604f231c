"""Whether a StreamReplay is to be created for a stream now, and when to look again. Performs no I/O.

Nothing is remembered but by the replays themselves: each that was created for a schedule carries the moment for which it was,
and is named after it, so that creating it again is a conflict that says that it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from exactlyonce.api.replay_schedule import ReplaySchedule
from exactlyonce.api.resource import NAME_MAX_LENGTH
from exactlyonce.errors import Refused
from exactlyonce.launch.pod_names import short_name
from exactlyonce.ledger.history import FailureSummary
from exactlyonce.schema.cron import Cron

LOOK_AGAIN = timedelta(minutes=1)
"""How often what is in quarantine is counted, where that may make a replay due."""

LEAST_BETWEEN = timedelta(minutes=5)
"""So long after the end of a replay none is made for what is in quarantine, whatever the ledger's clock says of it."""

_STAMP = "%Y%m%d%H%M"


class TimeZoneUnknown(Refused):
    """The system of the operator has no such time zone."""


@dataclass(frozen=True)
class MadeReplay:
    """A replay that was created for a schedule: the moment for which it was, and when it ended; None while it has not.

    `began_at` is when its first attempt was recorded, or it was created, and `put_back` how many records it has put back.
    """

    name: str
    due_at: datetime
    ended_at: datetime | None
    began_at: datetime | None = None
    put_back: int = 0


@dataclass(frozen=True)
class ScheduleFacts:
    """What is known of a stream when its schedule is looked at.

    `since` is when the schedule was first seen: before it nothing was missed. `made` are the replays of the schedule, `is_busy`
    tells whether any replay of the stream has not ended, and `held` is what is in quarantine, where that was asked: the records
    of each of `held_moments`. What stands in the future, since a clock was wrong, does not count.
    """

    now: datetime
    since: datetime
    made: tuple[MadeReplay, ...]
    is_busy: bool
    held: FailureSummary = field(default_factory=FailureSummary)

    @property
    def last_due(self) -> datetime:
        """The moment of the latest replay, or when the schedule was first seen, whichever is later."""
        return max([self.since, *(it.due_at for it in self.made if it.due_at <= self.now)])

    @property
    def last(self) -> MadeReplay | None:
        """The replay that has ended last."""
        ended = [it for it in self.made if it.ended_at is not None and it.ended_at <= self.now]
        return max(ended, key=lambda it: it.ended_at or self.since, default=None)

    @property
    def last_end(self) -> datetime:
        """When the latest replay ended, or when the schedule was first seen."""
        return self.since if self.last is None or self.last.ended_at is None else self.last.ended_at

    @property
    def held_moments(self) -> tuple[datetime, datetime]:
        """Since when records in quarantine are counted: since the latest replay began, and since it ended."""
        began = None if self.last is None else self.last.began_at
        return (self.last_end if began is None else min(began, self.last_end), self.last_end)


def counts_quarantine(schedule: ReplaySchedule) -> bool:
    """Whether what is in quarantine may make a replay due."""
    return schedule.when_failed_records is not None or schedule.when_failed_for is not None


def due_at(schedule: ReplaySchedule, facts: ScheduleFacts) -> datetime | None:
    """Return the moment for which a replay is to be created now, or None. One replay makes up for all that were missed.

    Raises:
        TimeZoneUnknown: if the operator's system has no such time zone.
    """
    if schedule.suspend or facts.is_busy:
        return None
    if schedule.schedule is not None:
        missed = Cron.parse(schedule.schedule).last_between(facts.last_due, facts.now, zone_of(schedule))
        if missed is not None:
            return missed
    # A minute has one name: a second replay of the same minute would be taken for the first.
    now = facts.now.replace(second=0, microsecond=0)
    if now <= facts.last_due or (facts.last is not None and facts.now < facts.last_end + LEAST_BETWEEN):
        return None
    return now if _are_many(schedule, facts) or _are_old(schedule, facts) else None


def _are_many(schedule: ReplaySchedule, facts: ScheduleFacts) -> bool:
    """Whether enough was put there since the latest replay began; what that one has put back does not count."""
    if schedule.when_failed_records is None or not facts.held.records_since:
        return False
    since_begin, since_end = facts.held.records_since
    put_back = 0 if facts.last is None else facts.last.put_back
    return since_end + max(since_begin - since_end - put_back, 0) >= schedule.when_failed_records


def _are_old(schedule: ReplaySchedule, facts: ScheduleFacts) -> bool:
    if schedule.when_failed_for is None or facts.held.oldest is None:
        return False
    return max(facts.held.oldest, facts.last_end) + schedule.when_failed_for <= facts.now


def look_again_at(schedule: ReplaySchedule, facts: ScheduleFacts) -> datetime | None:
    """Return when the schedule is to be looked at again; None where only a change of the resource can matter.

    Raises:
        TimeZoneUnknown: if the operator's system has no such time zone.
    """
    if schedule.suspend:
        return None
    moments = [facts.now + LOOK_AGAIN] if counts_quarantine(schedule) or facts.is_busy else []
    if schedule.schedule is not None:
        following = Cron.parse(schedule.schedule).first_after(facts.now, zone_of(schedule))
        moments += [] if following is None else [following]
    return min(moments, default=None)


def zone_of(schedule: ReplaySchedule) -> ZoneInfo:
    """Return the schedule's time zone.

    Raises:
        TimeZoneUnknown: if the operator's system has no such time zone.
    """
    try:
        return ZoneInfo(schedule.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
        raise TimeZoneUnknown(
            f"spec.replay.timeZone: there is no time zone {schedule.time_zone}; write one such as Europe/Berlin."
        ) from problem


def name_of(stream: str, moment: datetime) -> str:
    """Return the name of the replay of a stream for a moment, the same whoever asks."""
    return short_name(stream, f"-{moment.astimezone(UTC):{_STAMP}}", NAME_MAX_LENGTH)


def no_longer_kept(facts: ScheduleFacts, keep: int) -> tuple[MadeReplay, ...]:
    """Return the replays that have ended and are more than are kept, but for the latest one, which says what was last due.

    One whose moment is yet to come says nothing, and is the first to go.
    """

    def latest(made: MadeReplay) -> tuple[bool, datetime]:
        return made.due_at <= facts.now, made.due_at

    ended = sorted((it for it in facts.made if it.ended_at is not None), key=latest, reverse=True)
    return tuple(ended[keep:])
