"""Rules of the whole spec: the folders of one stream are apart from each other. Performs no I/O.

A checkpoint that is lost is removed as a folder, the files of a sink are listed below their path, a ledger begins in an empty
folder, and a source reads the files of its folder, and may take them away: where one lay in the other, one would take the
other's files for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from exactlyonce.api.ledger import LEDGER_FOLDER
from exactlyonce.connectors.specs import LedgerSpec, SinkSpec, SourceSpec
from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.model import field_name


class _Folder(NamedTuple):
    """A field that names a folder: whether it is there, and its value, both in CEL."""

    part: str
    connector: str
    field: str

    @property
    def name(self) -> str:
        return f"{self.part}.{field_name(self.connector)}.{field_name(self.field)}"

    @property
    def is_left_out(self) -> str:
        of = (f"self.{self.part}", f"self.{self.part}.{field_name(self.connector)}", f"self.{self.name}")
        return f"({' || '.join(f'!has({path})' for path in of)})"

    @property
    def cel(self) -> str:
        return _plain_cel(f"self.{self.name}")

    def of(self, spec: Any) -> str | None:
        """Return the folder that a spec names here, if it does."""
        chosen = getattr(spec, self.part)
        named = None if chosen is None else getattr(chosen, self.connector)
        folder = None if named is None else getattr(named, self.field)
        return None if folder is None else _plain(folder)


def folder_rules(
    sources: Mapping[str, type[SourceSpec]],
    sinks: Mapping[str, type[SinkSpec]],
    ledgers: Mapping[str, type[LedgerSpec]],
) -> tuple[Rule, ...]:
    """Return the rules, where these are the sources, sinks and ledgers that a stream can have.

    That two folders of one source are apart is a rule of its own spec.
    """
    read = [_Folder("source", name, field) for name, source in sources.items() for field in source.folder_fields]
    rows = [_Folder("sink", name, sink.folder_field) for name, sink in sinks.items() if sink.folder_field]
    logs = [_Folder("ledger", name, ledger.folder_field) for name, ledger in ledgers.items() if ledger.folder_field]
    return (
        *(_apart_from_checkpoint(folder, "") for folder in rows),
        *(_apart_from_checkpoint(folder, LEDGER_FOLDER) for folder in logs),
        *(_apart(folder, other) for folder in logs for other in rows),
        *(_apart_from_checkpoint(folder, "") for folder in read),
        *(_apart(folder, other) for folder in read for other in (*rows, *logs)),
    )


def _apart_from_checkpoint(folder: _Folder, but: str) -> Rule:
    """Return the rule for a folder and the checkpoint's; `but` is the one folder of a checkpoint where it may be."""
    but_cel = f" || {folder.cel} == {_CHECKPOINT} + '{but}/'" if but else ""
    sentence = f"{folder.name} and the checkpoint have to be different folders, neither of them in the other"

    def holds(spec: Any) -> bool:
        found, checkpoint = folder.of(spec), _plain(spec.checkpoint.location)
        return found is None or are_apart(found, checkpoint) or (bool(but) and found == f"{checkpoint}{but}/")

    return Rule(
        f"{folder.is_left_out} || ({_apart_cel(folder.cel, _CHECKPOINT)}){but_cel}",
        holds,
        f"{sentence}, except for the folder {but} of the checkpoint's location" if but else sentence,
    )


def _apart(folder: _Folder, other: _Folder) -> Rule:
    def holds(spec: Any) -> bool:
        found, others = folder.of(spec), other.of(spec)
        return found is None or others is None or are_apart(found, others)

    return Rule(
        f"{folder.is_left_out} || {other.is_left_out} || ({_apart_cel(folder.cel, other.cel)})",
        holds,
        f"{folder.name} and {other.name} have to be different folders, neither of them in the other",
    )


def are_apart(folder: str, other: str) -> bool:
    """Whether neither of two folders is the other, or lies in it; each ends with a slash."""
    return not folder.startswith(other) and not other.startswith(folder)


def _apart_cel(folder: str, other: str) -> str:
    return f"!{folder}.startsWith({other}) && !{other}.startsWith({folder})"


def _plain(location: str) -> str:
    """Return a location with a slash at its end, and as few others as a file system or S3 needs; `_plain_cel` says the same."""
    return f"{location}/".replace("file://", "").replace("//", "/").replace("//", "/")


def _plain_cel(location: str) -> str:
    return f"({location} + '/').replace('file://', '').replace('//', '/').replace('//', '/')"


_CHECKPOINT = _plain_cel(
    "(has(self.checkpoint.s3) ? self.checkpoint.s3.location : has(self.checkpoint.volume) ? self.checkpoint.volume.path : "
    "has(self.checkpoint.local) ? self.checkpoint.local.path : 'nowhere:')"
)
