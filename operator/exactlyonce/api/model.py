"""The base of every object of the resource, and the kinds of value they share."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")


class Model(BaseModel):
    """An immutable object with camelCase names on the outside; a field that it does not know is refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def to_document(self) -> dict[str, Any]:
        """Return the object as it stands in a YAML or JSON document, without what was left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def parse_duration(text: object) -> timedelta:
    """Parse a duration such as `500ms`, `10s`, `5m` or `1h30m`.

    Raises:
        ValueError: if it is anything else.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) and text else None
    if match is None:
        raise ValueError(f"{text!r} is no duration; write it like 500ms, 10s, 5m or 1h30m")
    hours, minutes, seconds, milliseconds = (int(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)


def render_duration(duration: timedelta) -> str:
    """Render a duration in the form `parse_duration` reads."""
    milliseconds = round(duration.total_seconds() * 1000)
    hours, milliseconds = divmod(milliseconds, 3_600_000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    parts = [(hours, "h"), (minutes, "m"), (seconds, "s"), (milliseconds, "ms")]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _as_duration(value: object) -> object:
    return value if isinstance(value, timedelta) else parse_duration(value)


Duration = Annotated[timedelta, BeforeValidator(_as_duration), PlainSerializer(render_duration, return_type=str)]

DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


class SecretRef(Model):
    """A secret in the stream's own namespace."""

    name: str = Field(pattern=DNS_NAME, max_length=253, description="The secret's name.")
