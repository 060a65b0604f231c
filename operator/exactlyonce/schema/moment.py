"""A moment as a resource writes it: RFC 3339 with a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, WithJsonSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _is_moment(value: object) -> object:
    if not isinstance(value, datetime) and not (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        raise ValueError(f"{value!r} is not a timestamp; write it as 2026-01-31T00:00:00Z")
    return value


Moment = Annotated[
    AwareDatetime, BeforeValidator(_is_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]


Moments = tuple[datetime, datetime]
"""The first one, and the one before which it ends."""


def first_milliseconds(moment: datetime) -> int:
    """Return the first millisecond since 1970 that is not before a moment: a fraction of one counts as the next.

    Performs no I/O.
    """
    return -((_EPOCH - moment) // timedelta(milliseconds=1))
