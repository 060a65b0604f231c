"""What a format's options say of values, in every format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from enum import Enum
from functools import cached_property
from zoneinfo import ZoneInfo

from exactlyonce.errors import Refused

UTC_NAMES = ("UTC", "Etc/UTC", "Z", "GMT")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(0[0-9]|1[0-8]):([0-5][0-9])")


class TimestampUnit(Enum):
    """What a number in a column of type TIMESTAMP counts, since 1970; the value is how many there are in a second."""

    SECONDS = 1
    MILLISECONDS = 1_000
    MICROSECONDS = 1_000_000
    NANOSECONDS = 1_000_000_000


class ZoneUnknown(Refused):
    """A time zone has a name that nobody knows."""


@dataclass(frozen=True)
class Rules:
    """How values are taken where the format leaves a choice; made in the driver, and pickled to its tasks.

    Attributes:
        zone: the time zone of a TIMESTAMP that is written without an offset.
        timestamp_unit: what a number in a column of type TIMESTAMP counts; None if numbers are malformed there.
        not_a_number: whether FLOAT and DOUBLE take the texts NaN, Infinity and -Infinity.
    """

    zone: str = "UTC"
    timestamp_unit: TimestampUnit | None = None
    not_a_number: bool = False

    @cached_property
    def time_zone(self) -> tzinfo:
        """The zone itself.

        Raises:
            ZoneUnknown: if there is no such zone.
        """
        if self.zone in UTC_NAMES:
            return UTC
        if (match := _OFFSET.fullmatch(self.zone)) is not None:
            offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
            return timezone(-offset if match[1] == "-" else offset)
        try:
            return ZoneInfo(self.zone)
        except (KeyError, OSError, ValueError) as problem:
            raise ZoneUnknown(
                f"timeZone {self.zone} is not a known zone; write one like Europe/Berlin or +01:00."
            ) from problem
