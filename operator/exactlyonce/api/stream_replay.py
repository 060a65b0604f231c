"""A StreamReplay: what it asks for, and the resource as a document. Performs no I/O.

It asks for one replay of one stream and never changes: what it has done is in its status, and another replay is another
resource. docs/adr/0044.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from exactlyonce.api.replayed_ranges import AskedRanges
from exactlyonce.api.resource import API_VERSION, Metadata, ResourceInvalid, documents_in, sentences_of
from exactlyonce.schema.constraints import Rule, Unique, matches
from exactlyonce.schema.model import DNS_LABEL, Flag, Model, Whole
from exactlyonce.schema.moment import Moment

REPLAY_KIND = "StreamReplay"
REPLAY_PLURAL = "streamreplays"

MOST_CHUNK = 1_000_000
DEFAULT_CHUNK = 10_000
MOST_IDS = 1000

RangeId = Annotated[
    str,
    Field(max_length=400),
    matches(
        r"[0-9]{1,18}/.+/[0-9]{1,90}",
        "write an id as exactlyonce failures shows it: BATCH/PARTITION/POSITION, such as 12/orders-0/340",
    ),
]


LetterId = Annotated[
    str,
    Field(max_length=400),
    matches(
        r".+/[0-9]{1,40}",
        "write an id as exactlyonce dead-letters shows it: PARTITION/POSITION, such as orders-0/340",
    ),
]
Matching = Annotated[str, Field(min_length=1, max_length=500)]

_FROM_IS_EARLIER = Rule(
    "!has(self.from) || !has(self.until) || self.from < self.until",
    lambda it: it.from_ is None or it.until is None or it.from_ < it.until,
    "from is earlier than until",
)
_BACKFILL = matches(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "write lowercase letters, digits, hyphens and dots")
_STREAM = matches(DNS_LABEL, "write the name of an ExactlyOnceStream of the replay's namespace")


class FailedRanges(Model):
    """Ranges that are in quarantine: all of them, or those that fit every field that is given."""

    ids: Annotated[tuple[RangeId, ...], Field(max_length=MOST_IDS), Unique()] = Field(
        (), description="The ids of ranges, as `exactlyonce failures` shows them. An id that is unknown is refused."
    )
    from_: Moment | None = Field(
        None, alias="from", description="The ranges that got their status at this moment or later."
    )
    until: Moment | None = Field(None, description="The ranges that got their status before this moment.")
    error_matching: Matching | None = Field(
        None, description="The ranges whose error contains this text, in upper or lower case."
    )

    rules = (_FROM_IS_EARLIER,)

    def admits(self, changed_at: datetime, error: str) -> bool:
        """Whether a range with this error, which has had its status since `changed_at`, is among those asked for."""
        return admits(self, changed_at, error)


class AskedLetters(Model):
    """Dead letters that no replay has landed: all of them, or those that fit every field that is given."""

    ids: Annotated[tuple[LetterId, ...], Field(max_length=MOST_IDS), Unique()] = Field(
        (),
        description="The ids of letters, as `exactlyonce dead-letters` shows them. An id that is unknown is refused.",
    )
    from_: Moment | None = Field(None, alias="from", description="The letters that landed at this moment or later.")
    until: Moment | None = Field(None, description="The letters that landed before this moment.")
    error_matching: Matching | None = Field(
        None, description="The letters whose error contains this text, in upper or lower case."
    )

    rules = (_FROM_IS_EARLIER,)

    def admits(self, landed_at: datetime, error: str) -> bool:
        """Whether a letter with this error, which landed at `landed_at`, is among those asked for."""
        return admits(self, landed_at, error)


def admits(asked: FailedRanges | AskedLetters, moment: datetime, error: str) -> bool:
    """Whether what has this moment and this error fits the fields that are given."""
    if asked.from_ is not None and moment < asked.from_:
        return False
    if asked.until is not None and moment >= asked.until:
        return False
    return asked.error_matching is None or asked.error_matching.casefold() in error.casefold()


class ReplayOrigin(Model):
    """What is replayed."""

    failures: FailedRanges | None = Field(
        None, description="Ranges that the stream has in quarantine; {} takes all of them."
    )
    dead_letters: AskedLetters | None = Field(
        None, description="Malformed records, parsed from the bytes that were kept of them; {} takes all of them."
    )
    ranges: AskedRanges | None = Field(
        None,
        description="Ranges that are given by hand: what a reset has skipped of them lands; with into, all of them.",
    )

    one_of = ("failures", "dead_letters", "ranges")


class ReplayInto(Model):
    """Another table than the stream's own, for a backfill."""

    table: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="The table, in the database of the stream's sink; written as spec.sink of the stream writes its own."
    )
    backfill: Annotated[str, Field(max_length=253), _BACKFILL] = Field(
        description="The name of the backfill, under which the ledger records what has landed. A StreamReplay of the same name "
        "that asks for the same continues it, and lands nothing twice; under another name all of its records land again.",
    )


class ReplayTransform(Model):
    """What makes the rows, instead of the stream's own transform."""

    sql: Annotated[str, Field(min_length=1, max_length=100_000)] = Field(description="A SELECT over the view `source`.")


class StreamReplaySpec(Model):
    """What a StreamReplay asks for."""

    stream: Annotated[str, Field(max_length=63), _STREAM] = Field(
        description="The name of an ExactlyOnceStream of the same namespace."
    )
    from_: ReplayOrigin = Field(alias="from", description="Which records are replayed: exactly one kind.")
    into: ReplayInto | None = Field(
        None,
        description="Another table, into which the ranges land whether or not the stream has landed them. Without it, what "
        "a reset has skipped of them lands into the stream's own.",
    )
    dry_run: Flag = Field(False, description="Only show in the status what would be replayed.")
    transform: ReplayTransform | None = Field(
        None, description="What makes the rows; the default is the transform that the stream's resource has now."
    )
    limit: Whole | None = Field(
        None, ge=1, le=1_000_000_000, description="How many records are read per second, on average."
    )
    chunk: Whole = Field(
        DEFAULT_CHUNK,
        ge=1,
        le=MOST_CHUNK,
        description="How many records one transaction lands at most; their rows pass through the memory of the replay's pod. A "
        "file of a folder lands in one transaction, however many it has.",
    )

    rules = (
        Rule(
            "!has(self.into) || has(self.from.ranges)",
            lambda it: it.into is None or it.from_.ranges is not None,
            "into needs from.ranges: a backfill lands ranges that are given by hand",
        ),
        Rule(
            "!has(self.from.ranges) || !has(self.from.ranges.named) || has(self.into)",
            lambda it: it.into is not None or it.from_.ranges is None or it.from_.ranges.named is None,
            "from.ranges.named needs into: such ranges land into another table only",
        ),
    )


class StreamReplay(Model):
    """One StreamReplay."""

    metadata: Metadata = Field(description="Name and namespace.")
    spec: StreamReplaySpec = Field(description="What is asked for.")


IMMUTABLE = {
    "rule": "self == oldSelf",
    "message": "a StreamReplay never changes; delete it, or create another one with another name",
}
"""The rule of the whole spec, by which the API server compares two versions."""


def read_replays(path: Path) -> list[StreamReplay]:
    """Read every StreamReplay of a YAML file; other documents in it are passed over.

    Raises:
        ResourceInvalid: if the file cannot be read, is no YAML, or holds one that is invalid.
    """
    return [parse_replay(document, str(path)) for document in documents_in(path) if document.get("kind") == REPLAY_KIND]


def parse_replay(document: Mapping[str, Any], where: str) -> StreamReplay:
    """Turn a document into a StreamReplay; `where` says in errors where it stands.

    Raises:
        ResourceInvalid: with a sentence for each thing that is wrong.
    """
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, REPLAY_KIND):
        raise ResourceInvalid(
            [f"{where}: this is {found[1]} of {found[0]}; write kind: {REPLAY_KIND} and apiVersion: {API_VERSION}."]
        )
    metadata = document.get("metadata")
    kept = (
        {key: metadata[key] for key in ("name", "namespace") if key in metadata} if isinstance(metadata, dict) else {}
    )
    try:
        return StreamReplay.model_validate({"metadata": kept, "spec": document.get("spec")})
    except ValidationError as problem:
        raise ResourceInvalid([f"{where}: {sentence}" for sentence in sentences_of(problem)]) from problem
