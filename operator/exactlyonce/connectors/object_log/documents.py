"""The objects of a log as text: its first one, entries, and snapshots. Performs no I/O.

Each is one JSON document, `{"checksum": …, "content": {…}}`, in a canonical rendering, so that the checksum can be recomputed
from what was parsed. A store that cuts an object short or mixes two up is noticed before anything follows from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.connectors.object_log.rows import changes_from_json, changes_to_json
from exactlyonce.connectors.object_log.state import Changes, LedgerState
from exactlyonce.errors import LedgerRefused

FORMAT = 1
"""The version of the format that this release writes, and the greatest that it reads."""


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
        return cls(_parse(content, "log", where)["id"])


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
        found = _parse(content, "entry", where)
        with_rows = _rows_of(found, "changes", where)
        return cls(found["number"], found["id"], found["previous"], with_rows)


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
        found = _parse(content, "snapshot", where)
        return cls(found["number"], found["id"], LedgerState().after(_rows_of(found, "rows", where)))


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
        found = _parse(content, "committables", where)
        texts = {int(batch): str(text) for batch, text in found["texts"]}
        return cls(found["number"], found["part"], found["streamId"], texts)


def _render(content: dict[str, Any]) -> bytes:
    text = _canonical(content)
    return f'{{"checksum":"{_checksum(text)}","content":{text}}}\n'.encode()


def _parse(content: bytes, kind: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
        found: dict[str, Any] = document["content"]
        is_whole = document["checksum"] == _checksum(_canonical(found))
        format_, found_kind = int(found["format"]), found["kind"]
    except (ValueError, KeyError, TypeError) as problem:
        raise LogDamaged(f"{where} is no object of a ledger: {_shown(content)}; restore it from a backup.") from problem
    if not is_whole:
        raise LogDamaged(f"The checksum of {where} does not fit its content: it was changed; restore it from a backup.")
    if format_ > FORMAT:
        raise LedgerRefused(
            f"{where} has the format {format_} and this release reads up to {FORMAT}; run the newer release."
        )
    if found_kind != kind:
        raise LogDamaged(f"{where} is a {found_kind} of a ledger where a {kind} belongs; restore it from a backup.")
    return found


def _rows_of(found: dict[str, Any], name: str, where: str) -> Changes:
    try:
        return changes_from_json(found[name])
    except (ValueError, KeyError, TypeError) as problem:
        raise LogDamaged(
            f"{where} holds a row that this release cannot read ({type(problem).__name__}: {problem}); run the release that "
            "wrote it."
        ) from problem


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shown(content: bytes) -> str:
    return f"{len(content)} bytes"
