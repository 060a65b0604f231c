"""What a resource may not say of when its quarantine is replayed: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import Refused

CRON = "write minute, hour, day of the month, month and day of the week, such as 0 3 * * * for 3:00 each day"
ZONE = "write a time zone such as Etc/UTC or Europe/Berlin"
NONE = "give at least one of schedule, whenFailedRecords and whenFailedFor"

REFUSED_SCHEDULES = (
    *(
        Refused(f"the cron line {line!r}", {"spec.replay": {"schedule": line}}, "spec.replay.schedule", CRON)
        for line in ("@daily", "* * * *", "60 * * * *", "0 3 * * mon", "0  3 * * *", "* * * * * *", "\u0663 3 * * *")
    ),
    Refused(
        "a time zone with a space", {"spec.replay": {"schedule": "0 3 * * *", "timeZone": "New York"}}, "timeZone", ZONE
    ),
    Refused(
        "a path for a time zone", {"spec.replay": {"schedule": "0 3 * * *", "timeZone": "../zone"}}, "timeZone", ZONE
    ),
    Refused("nothing that starts a replay", {"spec.replay": {"suspend": True}}, "spec.replay", NONE),
    Refused(
        "records that wait for a second",
        {"spec.replay": {"whenFailedFor": "1s"}},
        "whenFailedFor",
        "give a time from 1m to 720h",
    ),
)
