"""Spark's log of an output folder, `_spark_metadata`: its text, and what follows from the ledger's manifests. Performs no I/O.

Source: FileStreamSinkLog and CompactibleFileStreamLog of Spark 4.2.0; tests/golden/file_sink is what Spark itself wrote.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from urllib.parse import quote, unquote

from exactlyonce.connectors.files.manifest import DataFile, Manifest
from exactlyonce.errors import Refused
from exactlyonce.positions.ranges import BatchNumber

FOLDER = "_spark_metadata"
COMPACT_INTERVAL = 10
"""spark.sql.streaming.fileSink.log.compactInterval; readers derive it from the names of compact files."""

_VERSION = "v1"
_SUFFIX = ".compact"
_BLOCK_BYTES = 32 * 1024 * 1024
_LEGAL_IN_A_PATH = "/!$&'()*+,;=:@-._~"


class LogUnfit(Refused):
    """`_spark_metadata` does not hold what the ledger says; whose it is or what became of it is for a person to find out."""


def is_compaction(batch: int) -> bool:
    """Return whether the entry of this batch holds those of all batches before it, too."""
    return (batch + 1) % COMPACT_INTERVAL == 0


def name_of(batch: int) -> str:
    """Return the name of a batch's entry."""
    return f"{batch}{_SUFFIX}" if is_compaction(batch) else str(batch)


def batch_of(name: str) -> BatchNumber | None:
    """Return the batch of an entry's name; None for a file that Spark does not read either."""
    number = name.removesuffix(_SUFFIX)
    return BatchNumber(int(number)) if number.isascii() and number.isdigit() else None


def lines_of(manifest: Manifest | None, location: str) -> list[str]:
    """Return a line for each file of a batch; a batch without a manifest has none."""
    return [] if manifest is None else [line_of(file, location) for file in manifest.files]


def render(lines: list[str]) -> bytes:
    """Return an entry's content."""
    return "\n".join([_VERSION, *lines]).encode()


def parse(name: str, content: bytes) -> list[str]:
    """Return the lines of an entry.

    Raises:
        LogUnfit: if it is not an entry.
    """
    version, *lines = content.decode(errors="replace").split("\n")
    if version != _VERSION:
        raise LogUnfit(
            f"{FOLDER}/{name} begins with {version[:20]!r}, not with {_VERSION}: it is torn, or no release of Spark that is "
            "known wrote it. Use another path, or move the files away."
        )
    return lines


def entries_before(batch: int) -> range:
    """Return the batches whose entries a compaction puts together: the compaction before it, and all since."""
    return range(max(0, batch - COMPACT_INTERVAL), batch)


def first_entry(batch: int) -> int:
    """Return the entry with which a log begins whose first batch is this one.

    Spark reads on from the latest compaction, or from 0. A log that began at any other number would not be read.
    """
    return max(0, (batch + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1)


def latest_compaction(latest: BatchNumber | None) -> BatchNumber | None:
    """Return the compaction that readers begin from where this is the latest entry; None where there is none yet."""
    if latest is None or latest + 1 < COMPACT_INTERVAL:
        return None
    return BatchNumber(first_entry(latest))


def missing_entries(latest: BatchNumber | None, shown: Collection[BatchNumber]) -> Iterator[BatchNumber]:
    """Return the batches whose entries have to be written, in order, so that all of `shown` are.

    A number that landed no rows, such as the seed of a generation, has an empty entry: Spark refuses a log with a gap.
    """
    pending = [batch for batch in shown if latest is None or batch > latest]
    if pending:
        first = first_entry(min(pending)) if latest is None else latest + 1
        yield from (BatchNumber(number) for number in range(first, max(pending) + 1))


def require_not_ahead(latest: BatchNumber | None, landed: BatchNumber | None, *, has_former: bool = False) -> None:
    """Hold the log to the ledger: it never knows a batch that the ledger does not.

    `has_former`: a query of Spark's own has written the folder before, and later entries name its files as well, so nobody is
    told to remove them.

    Raises:
        LogUnfit: if it does.
    """
    if latest is None or (landed is not None and latest <= landed):
        return
    known, beyond = "holds no batch that has landed", "all entries"
    if landed is not None:
        known, beyond = f"ends with batch {landed}", f"the entries after {landed}"
    instead = f"another path, or remove {beyond} from {FOLDER} and the files that they name"
    if has_former:
        instead = "another path, or restore the ledger of a later moment"
    raise LogUnfit(
        f"{FOLDER} names files up to batch {latest}, and the ledger {known}: the ledger was restored to an earlier moment or "
        "lost, or another query wrote to this path. What the ledger does not know would land again and be visible twice. Use "
        f"{instead}."
    )


def line_of(file: DataFile, location: str) -> str:
    """Return the line of a file: SinkFileStatus as json4s writes it; the path is a URI."""
    status = {
        "path": address_of(file.path, location),
        "size": file.size_bytes,
        "isDir": False,
        "modificationTime": file.modified_milliseconds,
        "blockReplication": 1,
        "blockSize": _BLOCK_BYTES,
        "action": "add",
    }
    return json.dumps(status, separators=(",", ":"), ensure_ascii=False)


def address_of(path: str, location: str) -> str:
    """Return the URI of a file at a path relative to the sink's."""
    return f"{uri_of(location)}/{quote(path, safe=_LEGAL_IN_A_PATH)}"


def path_of(address: str, location: str) -> str | None:
    """Return where a file with this URI is, relative to the sink's path; None if it is elsewhere."""
    folder = f"{uri_of(location)}/"
    return unquote(address.removeprefix(folder)) if address.startswith(folder) else None


def uri_of(location: str) -> str:
    """Return the sink's path as a URI."""
    scheme, colon, path = location.partition("://")
    if not colon:
        scheme, path = "file", location
    return f"{scheme}://{quote(path.rstrip('/'), safe=_LEGAL_IN_A_PATH)}"
