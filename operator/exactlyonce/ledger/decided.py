"""A batch that is decided and not landed yet: what its tasks prepared in a sink that commits in two phases. Performs no I/O.

A stream has at most one such batch. Its positions have moved, so its rows will take effect; until they have, nothing that comes
after it may be decided (docs/adr/0036).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exactlyonce.bounded_json import parse_json
from exactlyonce.json_values import WrongType, count, text
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges


class Answer(StrEnum):
    """What a person has found of a load that its sink has forgotten, or has made of one that was loaded in part.

    The latter are words of their own, so that an answer that was given before anybody knew of a part says nothing of it.
    """

    COMMITTED = "Committed"
    ABORTED = "Aborted"
    COMPLETED = "Completed"
    """It was loaded in part, and the rows that it lacked were added to the table by hand."""
    REMOVED = "Removed"
    """It was loaded in part, and the rows that it had loaded were removed from the table by hand."""

    @property
    def says_rows_are_there(self) -> bool:
        """Whether all rows of the load are in the table; otherwise none is."""
        return self in (Answer.COMMITTED, Answer.COMPLETED)

    @property
    def is_of_a_part(self) -> bool:
        """Whether a person says it of a load that was loaded in part."""
        return self in (Answer.COMPLETED, Answer.REMOVED)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The file in which the rows of a load wait for the decision, because its sink commits a load as soon as it is submitted.

    `submitted_at_milliseconds` is recorded before the statement of the load may be sent: the time by the sink's own clock, in
    Unix milliseconds. Whoever finds it there does not send the statement, so that there is at most one for each label.
    `service` is which service has the file, since another one may have a place of the same name: no secret in it.
    """

    name: str
    service: str
    submitted_at_milliseconds: int | None = None

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON's objects."""
        submitted = self.submitted_at_milliseconds
        return {
            "file": self.name,
            "service": self.service,
            **({} if submitted is None else {"submittedAtMilliseconds": submitted}),
        }

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> StagedFile:
        """Return what `to_document` made."""
        submitted = found.get("submittedAtMilliseconds")
        return cls(text(found["file"]), text(found["service"]), None if submitted is None else count(submitted))


@dataclass(frozen=True, slots=True)
class Committable:
    """What one task prepared: the label and the id of its transaction in the sink, its rows, and the ranges they are of.

    A label may name another transaction once the sink has aborted or forgotten this one, so it is never used without the id.
    `answer` is what a person says of it; it counts only where the sink does not know the load, or has loaded a part of it.
    `shares_label` says that the label is of a form that another load may have as well, of another batch or another life of the
    stream. A load that is `staged` has no transaction before it is submitted; its id is empty, and its label is of nobody else.
    """

    label: str
    transaction_id: str
    rows: int
    ranges: Ranges
    answer: Answer | None = None
    shares_label: bool = False
    staged: StagedFile | None = None

    def __str__(self) -> str:
        whose = f"transaction {self.transaction_id}" if self.staged is None else "staged"
        return f"{self.answered_as} ({whose}, {self.rows} rows of {self.ranges})"

    @property
    def answered_as(self) -> str:
        """How a person's answer names it, so that an answer is of this load alone, also one that was left behind."""
        return f"{self.label}#{self.transaction_id}" if self.shares_label else self.label

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON's objects."""
        return {
            "label": self.label,
            "transaction": self.transaction_id,
            "rows": self.rows,
            "ranges": json.loads(self.ranges.to_json()),
            **({} if self.answer is None else {"answer": str(self.answer)}),
            **({"sharesLabel": True} if self.shares_label else {}),
            **({} if self.staged is None else {"staged": self.staged.to_document()}),
        }

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> Committable:
        """Return what `to_document` made."""
        ranges = Ranges.from_json(json.dumps(found["ranges"]))
        answer = None if found.get("answer") is None else Answer(text(found["answer"]))
        shares_label = found.get("sharesLabel", False) is True
        staged = None if found.get("staged") is None else StagedFile.from_document(found["staged"])
        return cls(
            text(found["label"]),
            text(found["transaction"]),
            count(found["rows"]),
            ranges,
            answer,
            shares_label,
            staged,
        )


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """The batch, and those of its committables that are not known to be committed.

    `origin_ids` are those of the origins as they were read, and `fingerprints` of the last record of each range, as far as they
    were read: rows that the sink has aborted are made again of the very same records. `sink` is where the loads are, as the
    sink says it; empty where a stream cannot change it.
    """

    batch: BatchNumber
    committables: tuple[Committable, ...]
    origin_ids: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[Partition, Fingerprint] = field(default_factory=dict)
    sink: str = ""

    def to_json(self) -> str:
        """Render it; equal ones give equal texts."""
        document = {
            "batch": self.batch,
            "committables": [committable.to_document() for committable in self.committables],
            "originIds": dict(self.origin_ids),
            "fingerprints": [
                [key.origin, key.key, kept.offset, kept.digest, kept.timestamp_milliseconds, kept.leader_epoch]
                for key, kept in self.fingerprints.items()
            ],
            "sink": self.sink,
        }
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, content: str) -> DecidedBatch:
        """Parse what `to_json` renders.

        Raises:
            ValueError: if it is anything else.
        """
        found = parse_json(content)
        try:
            committables = tuple(Committable.from_document(one) for one in found["committables"])
            origin_ids = {origin: text(origin_id) for origin, origin_id in found["originIds"].items()}
            fingerprints = {
                Partition(text(origin), key): Fingerprint(count(offset), text(digest), timestamp, leader_epoch)
                for origin, key, offset, digest, timestamp, leader_epoch in found["fingerprints"]
            }
            return cls(BatchNumber(count(found["batch"])), committables, origin_ids, fingerprints, text(found["sink"]))
        except (AttributeError, KeyError, TypeError, WrongType) as problem:
            raise ValueError("JSON that is no decided batch") from problem
