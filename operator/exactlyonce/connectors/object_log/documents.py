"""The objects of a log as text: its first one, entries, and snapshots. Performs no I/O.

Each is one JSON document, `{"checksum": …, "content": {…}}`, in a canonical rendering, so that the checksum can be recomputed
from what was parsed. A store that cuts an object short or mixes two up is noticed before anything follows from it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.bounded_json import MALFORMED, parse_json
from exactlyonce.connectors.object_log.bounds import MOST_VALUES
from exactlyonce.connectors.object_log.rows import changes_from_json, changes_to_json
from exactlyonce.connectors.object_log.state import Changes, LedgerState
from exactlyonce.errors import LedgerRefused
from exactlyonce.json_values import count, fields, items, text, whole_number

FORMAT = 1
"""The version of the format; an object of any other is refused."""

_LOG_ID = re.compile(r"[0-9a-f]{32}")

_MOST_SHOWN = 120
"""So many characters of a problem are shown: it may quote what somebody wrote there."""


class LogDamaged(LedgerRefused):
    """An object of the log is not what was written there, or one is missing; nothing can be concluded from the log."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The first object: which log this is. Everything else lies in a folder that its id names."""

    log_id: str

    def render(self) -> bytes:
        """Return the object's content."""
        return _render({"format": FORMAT, "kind": "log", "id": self.log_id})

    @classmethod
    def parse(cls, content: bytes, where: str) -> Origin:
        """Read the object's content, or raise LogDamaged."""
        with _named(where):
            log_id = text(_parse(content, "log", where, 10)["id"])
            if not _LOG_ID.fullmatch(log_id):  # it becomes a part of every path
                raise ValueError("its id is not 32 hexadecimal digits")
            return cls(log_id)


@dataclass(frozen=True, slots=True)
class Entry:
    """One transaction.

    `entry_id` is random, so that who does not know whether its create arrived can tell whose entry is there. `previous` is
    the id of the entry that it was made over.
    """

    number: int
    entry_id: str
    previous: str
    changes: Changes = field(hash=False)

    @classmethod
    def over(cls, number: int, previous: str, changes: Changes) -> Entry:
        """Return a new entry that is to follow on entry `number`."""
        return cls(number + 1, secrets.token_hex(16), previous, changes)

    def render(self) -> bytes:
        """Return the object's content."""
        return _render(
            {
                "format": FORMAT,
                "kind": "entry",
                "number": self.number,
                "id": self.entry_id,
                "previous": self.previous,
                "changes": changes_to_json(self.changes),
            }
        )

    @classmethod
    def parse(cls, content: bytes, where: str) -> Entry:
        """Read the object's content, or raise LogDamaged."""
        with _named(where):
            found = _parse(content, "entry", where)
            changes = changes_from_json(found["changes"])
            return cls(count(found["number"]), text(found["id"]), text(found["previous"]), changes)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after an entry, which stands for that entry and everything before it."""

    number: int
    entry_id: str
    state: LedgerState = field(hash=False)

    def render(self) -> bytes:
        """Return the object's content; equal states give equal content."""
        return _render(
            {
                "format": FORMAT,
                "kind": "snapshot",
                "number": self.number,
                "id": self.entry_id,
                "rows": changes_to_json(self.state.everything()),
            }
        )

    @classmethod
    def parse(cls, content: bytes, where: str) -> Snapshot:
        """Read the object's content, or raise LogDamaged."""
        with _named(where):
            found = _parse(content, "snapshot", where)
            state = LedgerState().after(changes_from_json(found["rows"]))
            return cls(count(found["number"]), text(found["id"]), state)


@dataclass(frozen=True, slots=True)
class Archive:
    """Committables of one stream that were taken out of the state after entry `number`: kept once, and not in each snapshot."""

    number: int
    part: int
    stream_id: str
    texts: Mapping[int, str] = field(hash=False)

    def render(self) -> bytes:
        """Return the object's content."""
        return _render(
            {
                "format": FORMAT,
                "kind": "committables",
                "number": self.number,
                "part": self.part,
                "streamId": self.stream_id,
                "texts": [[batch, self.texts[batch]] for batch in sorted(self.texts)],
            }
        )

    @classmethod
    def parse(cls, content: bytes, where: str) -> Archive:
        """Read the object's content, or raise LogDamaged."""
        with _named(where):
            found = _parse(content, "committables", where)
            pairs = [items(pair, 2) for pair in items(found["texts"])]
            texts = {count(batch): text(told) for batch, told in pairs}
            if len(texts) != len(pairs):
                raise ValueError("it holds a batch twice")
            return cls(count(found["number"]), count(found["part"]), text(found["streamId"]), texts)


def _render(content: dict[str, Any]) -> bytes:
    told = _canonical(content)
    return f'{{"checksum":"{_checksum(told)}","content":{told}}}\n'.encode()


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Refuse a document that is not what its kind says, whatever that raises, by the name of the object that holds it."""
    try:
        yield
    except MALFORMED as problem:
        told = " ".join(str(problem).split())[:_MOST_SHOWN]
        raise LogDamaged(
            f"{where} is not a ledger object that this release can read ({type(problem).__name__}: {told}); restore it from "
            "a backup, or run the release that wrote it."
        ) from problem


def _parse(content: bytes, kind: str, where: str, most_values: int = MOST_VALUES) -> Mapping[str, Any]:
    document = fields(parse_json(content, most_values))
    found = fields(document["content"])
    if document["checksum"] != _checksum(_canonical(found)):
        raise LogDamaged(f"The checksum of {where} does not fit its content: it was changed; restore it from a backup.")
    format_ = whole_number(found["format"])
    if format_ != FORMAT:
        raise LedgerRefused(
            f"{where} has the format {format_}, and this release reads format {FORMAT}; run the release that wrote it."
        )
    if found["kind"] != kind:
        raise LogDamaged(f"{where} is not the {kind} of a ledger that belongs there; restore it from a backup.")
    return found


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()
