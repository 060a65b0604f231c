"""A cron line of five fields in a time zone: which moments it names. Performs no I/O, but for the system's time zones.

The fields are minute, hour, day of the month, month and day of the week (0 and 7 are Sunday). Each is `*`, a number, a range
such as `1-5`, a step such as `*/15`, or a list of those. Where both days are restricted, either is enough. Source: crontab(5).

A local time that the clock skips is the moment as far behind the change as it is behind the gap's begin; one that comes twice
is the first of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

MOST_DAYS = 1500
"""How far is looked for the next moment: the 29th of February comes within so many days, but for a century's end."""

_NUMBERS = (
    ("[0-9]|[1-5][0-9]", 0, 59),
    ("[0-9]|1[0-9]|2[0-3]", 0, 23),
    ("[1-9]|[12][0-9]|3[01]", 1, 31),
    ("[1-9]|1[0-2]", 1, 12),
    ("[0-7]", 0, 7),
)


def _field(number: str) -> str:
    item = rf"(\*|({number})(-({number}))?)(/[1-9][0-9]?)?"
    return f"{item}(,{item})*"


PATTERN = " ".join(_field(number) for number, _, _ in _NUMBERS)
"""What a line has to match; whatever matches it is a line. A range whose end is less than its begin goes over the turn."""


@dataclass(frozen=True)
class Cron:
    """A line that matches PATTERN."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    @classmethod
    def parse(cls, line: str) -> Cron:
        """Return the line; it has to match PATTERN."""
        fields = line.split(" ")
        minutes, hours, days, months, weekdays = (
            _values(field, least, most) for field, (_, least, most) in zip(fields, _NUMBERS, strict=True)
        )
        restricted = not fields[2].startswith("*") and not fields[4].startswith("*")
        return cls(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), restricted)

    def first_after(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first moment after another one, in UTC; None where there is none within MOST_DAYS."""
        today = moment.astimezone(zone).date()
        for number in range(-1, MOST_DAYS):
            found = [at for at in self._of(today + timedelta(days=number), zone) if at > moment]
            if found:
                return found[0]
        return None

    def last_between(self, since: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the last moment after `since` and not after `until`, in UTC; None where there is none within MOST_DAYS."""
        today = until.astimezone(zone).date()
        for number in range(-1, MOST_DAYS):
            day = today - timedelta(days=number)
            found = [at for at in self._of(day, zone) if since < at <= until]
            if found:
                return found[-1]
            if datetime.combine(day, time(), zone) < since - timedelta(days=1):
                return None
        return None

    def _of(self, day: date, zone: ZoneInfo) -> list[datetime]:
        return sorted(set(self._moments(day, zone)))

    def _moments(self, day: date, zone: ZoneInfo) -> Iterator[datetime]:
        if day.month not in self.months or not self._is_on(day):
            return
        for hour in self.hours:
            for minute in self.minutes:
                yield datetime.combine(day, time(hour, minute), zone).astimezone(UTC)

    def _is_on(self, day: date) -> bool:
        on_day, on_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return on_day or on_weekday if self.either_day else on_day and on_weekday


def _values(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        begin, _, end = span.partition("-")
        if span == "*":
            numbers = list(range(least, most + 1))
        elif end:
            numbers = _over_the_turn(int(begin), int(end), least, most)
        else:
            numbers = list(range(int(begin), most + 1)) if step else [int(begin)]
        found.update(numbers[:: int(step or 1)])
    return frozenset(found)


def _over_the_turn(begin: int, end: int, least: int, most: int) -> list[int]:
    if begin <= end:
        return list(range(begin, end + 1))
    return [*range(begin, most + 1), *range(least, end + 1)]
