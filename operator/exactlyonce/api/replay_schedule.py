"""When the operator replays by itself what a stream has in quarantine. Performs no I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.schema import cron
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import LARGEST, Duration, Flag, Model, Whole, within

_CRON = matches(
    cron.PATTERN, "write minute, hour, day of the month, month and day of the week, such as 0 3 * * * for 3:00 each day"
)
_ZONE = matches(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}", "write a time zone such as Etc/UTC or Europe/Berlin")


class ReplaySchedule(Model):
    """What makes the operator create a StreamReplay of everything that is in quarantine; one at a time."""

    schedule: Annotated[str, Field(max_length=200), _CRON] | None = Field(
        None,
        description="A cron line: minute, hour, day of the month, month, day of the week. However many moments were missed, "
        "such as while no operator ran, one replay is created.",
    )
    time_zone: Annotated[str, Field(max_length=64), _ZONE] = Field(
        "Etc/UTC", description="The time zone of the schedule."
    )
    when_failed_records: Whole | None = Field(
        None,
        ge=1,
        le=LARGEST,
        description="A replay is created when this many records were put into quarantine since the latest replay ended.",
    )
    when_failed_for: Annotated[Duration, within("1m", "720h")] | None = Field(
        None,
        description="A replay is created when records have been in quarantine for this long, and the latest replay is as long "
        "ago.",
    )
    limit: Whole | None = Field(
        None, ge=1, le=1_000_000_000, description="How many records a replay reads per second, on average."
    )
    history: Whole = Field(
        3, ge=1, le=100, description="How many replays that have ended are kept; their pods go with them."
    )
    suspend: Flag = Field(False, description="True creates no further replays; one that has begun is not ended.")

    rules = (
        Rule(
            "has(self.schedule) || has(self.whenFailedRecords) || has(self.whenFailedFor)",
            lambda it: (it.schedule, it.when_failed_records, it.when_failed_for) != (None, None, None),
            "give at least one of schedule, whenFailedRecords and whenFailedFor",
        ),
    )
