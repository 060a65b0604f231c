"""What a stream that reads a folder may not say elsewhere in its resource: each rule in CEL, in Python and in a sentence."""

from __future__ import annotations

from typing import Any

from exactlyonce.schema.constraints import Rule
from exactlyonce.schema.places import plain_path


def _deletes_no_keys(spec: Any) -> bool:
    return spec.source.files is None or spec.source.format.on_tombstone.value != "Delete"


def _keeps_what_is_replayed(spec: Any) -> bool:
    source = spec.source.files
    return source is None or source.clean_source == "Off" or spec.recovery.on_poison_batch != "Quarantine"


def _has_files_of_rows(spec: Any) -> bool:
    return spec.source.files is not None or not spec.source.format.type.is_columnar


def _has_no_header_before_rows(spec: Any) -> bool:
    source = spec.source.files
    return source is None or source.header_lines == 0 or not spec.source.format.type.is_columnar


def are_apart(folder: str, other: str) -> bool:
    """Whether neither of two folders is in the other. Performs no I/O."""
    found, others = f"{plain_path(folder)}/", f"{plain_path(other)}/"
    return not found.startswith(others) and not others.startswith(found)


def plain_cel(location: str) -> str:
    """Return the expression of a folder as `apart_cel` takes it."""
    return f"({location}.replace('file://', '') + '/')"


def apart_cel(folder: str, other: str) -> str:
    """Return the expression that says what `are_apart` says."""
    return f"(!{folder}.startsWith({other}) && !{other}.startsWith({folder}))"


STREAM_RULES: tuple[Rule, ...] = (
    Rule(
        "!has(self.source.files) || self.source.format.onTombstone != 'Delete'",
        _deletes_no_keys,
        "source.format.onTombstone: Delete is not for source.files: a line has no key, so none says that a key is to be "
        "deleted",
    ),
    Rule(
        "!has(self.source.files) || self.source.files.cleanSource == 'Off' || !has(self.recovery) || "
        "!has(self.recovery.onPoisonBatch) || self.recovery.onPoisonBatch != 'Quarantine'",
        _keeps_what_is_replayed,
        "source.files.cleanSource has to be Off with recovery.onPoisonBatch: Quarantine, since a quarantined batch can be "
        "replayed only while its files are there",
    ),
    Rule(
        "has(self.source.files) || !(self.source.format.type in ['Parquet', 'Orc'])",
        _has_files_of_rows,
        "source.format.type: Parquet and Orc need source.files; write Json, Csv or Raw for another source",
    ),
    Rule(
        "!has(self.source.files) || self.source.files.headerLines == 0 || !(self.source.format.type in ['Parquet', 'Orc'])",
        _has_no_header_before_rows,
        "source.files.headerLines is for files of lines, and has to be 0 with format.type: Parquet and Orc",
    ),
)
