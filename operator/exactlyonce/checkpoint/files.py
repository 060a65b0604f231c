"""Parse and render the single files of a Spark streaming checkpoint. Performs no I/O.

Sources: OffsetSeqLog, CommitLog, StreamMetadata and HDFSMetadataLog in org.apache.spark.sql.execution.streaming of Spark
4.2.0. What an entry of a source means is told by its `PositionCodec`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.bounded_json import JsonRefused, parse_json

OFFSET_LOG_VERSIONS = (1, 2)
COMMIT_LOG_VERSIONS = (1, 2)
DEFAULT_WATERMARK_POLICY = "min"  # MultipleWatermarkPolicy.DEFAULT_POLICY_NAME
NO_OFFSET = "-"  # OffsetSeqLog.SERIALIZED_VOID_OFFSET: this source had no offset in this batch

_MOST_LINES = 100
"""More than that of an offset file are not told apart: it has one for each source, and a stream has one source."""


class FileEmpty(ValueError):
    """A log file has no bytes: its writer died between creating and writing it."""


class FileTorn(ValueError):
    """A log file ends early or is not a log file."""


class VersionUnsupported(ValueError):
    """A log file has a format version that this release does not know."""


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """`offsets/N`: what batch N covers up to, one entry per source in plan order; None where the file has `-`.

    `planned_milliseconds` is when it was planned, since 1970; None in a seed.
    """

    version: int
    ends: tuple[str | None, ...]
    conf: Mapping[str, str]
    planned_milliseconds: int | None = None

    @property
    def only_end(self) -> str | None:
        """The entry of the only source; None when it had no offset in this batch.

        Raises:
            FileTorn: if the query has several sources.
        """
        if len(self.ends) != 1:
            raise FileTorn(f"it names {len(self.ends)} sources where a stream has one")
        return self.ends[0]


def parse_metadata(content: bytes) -> str:
    """Return the query id of `metadata`: one JSON object without a version line.

    Raises:
        FileEmpty, FileTorn: if it is not that.
    """
    entry = _json_object(text_of(content))
    query_id = entry.get("id")
    if not isinstance(query_id, str) or not query_id:
        raise FileTorn("it has no query id")
    return query_id


def parse_offsets(content: bytes) -> OffsetFile:
    """Parse `offsets/N`: a version line, a metadata line, then one line per source.

    Version 2 names its sources: `sourceId:json`.

    Raises:
        FileEmpty, FileTorn, VersionUnsupported: by what is wrong with it.
    """
    lines = text_of(content).split("\n", _MOST_LINES)
    version = version_of(lines[0], OFFSET_LOG_VERSIONS, "offset log")
    if len(lines) < 3:
        raise FileTorn(
            f"it has {len(lines)} lines; expected are a version, the metadata of the batch and one line per source"
        )
    metadata = _json_object(lines[1])
    conf = metadata.get("conf", {})
    if not isinstance(conf, dict):
        raise FileTorn("its metadata line has no map of settings")
    ends = [line if version == 1 else line.partition(":")[2] for line in lines[2:]]
    ends_or_none = tuple(None if end == NO_OFFSET else end for end in ends)
    return OffsetFile(version, ends_or_none, conf, milliseconds_of(metadata.get("batchTimestampMs")))


def milliseconds_of(value: object) -> int | None:
    """Return a time since 1970 or a watermark; Spark writes 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def parse_commit(content: bytes) -> int:
    """Parse `commits/N` and return its version; what else it holds concerns stateful queries only.

    Raises:
        FileEmpty, FileTorn, VersionUnsupported: by what is wrong with it.
    """
    lines = text_of(content).split("\n", 2)
    version = version_of(lines[0], COMMIT_LOG_VERSIONS, "commit log")
    if len(lines) < 2:
        raise FileTorn("its metadata line is missing")
    _json_object(lines[1])
    return version


def render_metadata(query_id: str) -> bytes:
    """Return the content of `metadata`."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def render_offsets(end: str | None, shuffle_partitions: int, watermark_policy: str = DEFAULT_WATERMARK_POLICY) -> bytes:
    """Return the content of `offsets/N` for a query with one source, whose entry is `end`; None renders Spark's `-`.

    Without spark.sql.shuffle.partitions a restart that has to run batch N+1 again ends with None.get
    (OfflineStateRepartitionUtils.isRepartitionBatch compares it between the two).
    """
    conf = {"spark.sql.shuffle.partitions": str(shuffle_partitions)}
    if watermark_policy != DEFAULT_WATERMARK_POLICY:
        # What the log does not name, Spark takes for the default of old logs, whatever the session says.
        conf["spark.sql.streaming.multipleWatermarkPolicy"] = watermark_policy
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}, separators=(",", ":"))
    return f"v1\n{metadata}\n{NO_OFFSET if end is None else end}".encode()


def render_commit() -> bytes:
    """Return the content of `commits/N`."""
    return b'v1\n{"nextBatchWatermarkMs":0}'


def text_of(content: bytes) -> str:
    """Return the text of a log file.

    Raises:
        FileEmpty, FileTorn: if there is none.
    """
    if not content:
        raise FileEmpty("it has no bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise FileTorn("it is not UTF-8 text") from problem


def version_of(line: str, known: tuple[int, ...], log: str) -> int:
    """Return the version that a log file's first line names.

    Raises:
        FileTorn, VersionUnsupported: if it names none, or one that is not `known`.
    """
    digits = line.removeprefix("v")
    if digits == line or not (digits.isascii() and digits.isdigit()):
        raise FileTorn(f"its first line is {line[:40]!r}, not a version")
    version = int(digits)
    if version not in known:
        supported = " and ".join(f"v{number}" for number in known)
        raise VersionUnsupported(f"its {log} version is v{version}; this release reads {supported}")
    return version


def _json_object(text: str) -> dict[str, object]:
    try:
        value = parse_json(text)
    except JsonRefused as problem:
        raise FileTorn(f"{text[:40]!r} is {problem}") from problem
    if not isinstance(value, dict):
        raise FileTorn(f"{text[:40]!r} is not a JSON object")
    return value
