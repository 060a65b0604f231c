"""Ranges that a StreamReplay gives by hand: by numbers, by texts, or as what lies between two moments. Performs no I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exactlyonce.positions.named_spans import NamedSpan
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import Model, Whole
from exactlyonce.schema.moment import Moment

MOST_GIVEN = 100
"""Ranges given by hand; each is compared with each other one."""
MOST_PARTITION, MOST_POSITION = 2**31 - 1, 2**53 - 1

PositionText = Annotated[str, Field(min_length=1, max_length=1000)]


class GivenRange(Model):
    """Records of one partition, by their positions."""

    topic: Annotated[str, Field(min_length=1, max_length=249)] = Field(description="The topic.")
    partition: Whole = Field(ge=0, le=MOST_PARTITION, description="The number of the partition.")
    from_: Whole = Field(alias="from", ge=0, le=MOST_POSITION, description="The position of the first record.")
    until: Whole = Field(ge=1, le=MOST_POSITION, description="The position behind the last record.")

    rules = (
        Rule(
            "self.from < self.until",
            lambda it: it.from_ < it.until,
            "a range ends behind its beginning: until is greater than from",
        ),
    )

    def overlaps(self, other: GivenRange) -> bool:
        """Whether both hold a position of the same partition."""
        same = (self.topic, self.partition) == (other.topic, other.partition)
        return same and self.from_ < other.until and other.from_ < self.until


class NamedRange(Model):
    """Records of one partition, given by texts: positions in a shard of a data stream, or paths of files of a folder."""

    origin: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="The data stream, or the folder as `exactlyonce offsets` shows it."
    )
    partition: Annotated[str, Field(min_length=1, max_length=249)] = Field(description="The shard; 0 of a folder.")
    from_: PositionText = Field(
        alias="from",
        description="The position behind the record before the first one, as `exactlyonce offsets` shows positions; or "
        "TRIM_HORIZON, for whatever the shard still holds. Of a folder, the path of the first file below it.",
    )
    until: PositionText = Field(
        description="The position behind the last record. Of a folder, the path of the last file, which is among them."
    )

    @property
    def span(self) -> NamedSpan:
        """The range in the form in which a source looks it up."""
        return NamedSpan(self.origin, self.partition, self.from_, self.until)


_APART = Rule(
    "self.all(a, self.exists_one(b, a.topic == b.topic && a.partition == b.partition && a.from < b.until && b.from < a.until))",
    lambda given: all(sum(a.overlaps(b) for b in given) == 1 for a in given),
    "ranges of one partition overlap; give each record once",
)


class Between(Model):
    """Records of between two moments, by their own timestamps."""

    from_: Moment = Field(alias="from", description="The records of this moment or later.")
    until: Moment = Field(description="The records before this moment.")

    rules = (Rule("self.from < self.until", lambda it: it.from_ < it.until, "from is earlier than until"),)


class AskedRanges(Model):
    """Ranges that are given by hand, of which what a reset has skipped, or what is in quarantine, is landed."""

    positions: Annotated[tuple[GivenRange, ...], Field(min_length=1, max_length=MOST_GIVEN), _APART] | None = Field(
        None, description="Ranges of positions; the status names each part of them that may not be landed."
    )
    named: Annotated[tuple[NamedRange, ...], Field(min_length=1, max_length=MOST_GIVEN)] | None = Field(
        None,
        description="Ranges of a source whose positions count no records, with into. Those of a shard begin and end behind a "
        "record that it still holds; those of a folder are files in the order in which the stream has read them.",
    )
    by_timestamp: Between | None = Field(
        None,
        description="What lies between two moments, as far as it was skipped; with into, all of it, and until must have "
        "passed. Its positions are looked up once, when the first attempt begins.",
    )

    one_of = ("positions", "named", "by_timestamp")
