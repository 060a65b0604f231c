"""Whether what Spark's readers are shown is what the ledger names, file by file.

The numbers of batches do not tell: a ledger that was restored to an earlier moment goes on with a new generation, whose number
is past all that were ever planned. Its records land again, beside the files that readers are shown already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Protocol

from exactlyonce.checkpoint.store import FileMissing
from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.connectors.files.spark_log import FOLDER, LogUnfit, first_entry, lines_of, name_of, parse
from exactlyonce.positions.ranges import BatchNumber


class _Reads(Protocol):
    def read(self, path: str) -> bytes:
        """Return a file's content."""
        ...


def require_named(store: _Reads, location: str, latest: BatchNumber | None, manifests: Iterable[Manifest]) -> None:
    """Require that the ledger names every file that readers are shown after the first one that it names.

    Those before are of a ledger that was dropped, and whose checkpoint was adopted: they stay visible, and no batch of theirs
    lands again. `manifests` are all of the ledger, read after `latest` was listed.

    Raises:
        LogUnfit: if it does not, or if an entry is missing or is none.
    """
    if latest is None:
        return
    named = {path for manifest in manifests for path in _paths(lines_of(manifest, location))}
    is_own = False
    for number in range(first_entry(latest), latest + 1):
        name = name_of(number)
        try:
            content = store.read(f"{FOLDER}/{name}")
        except FileMissing:
            raise LogUnfit(
                f"{location}/{FOLDER}/{name} is missing, so readers cannot be shown a later batch: somebody removed it. "
                "Restore it, or use another path."
            ) from None
        try:
            shown = list(_paths(parse(name, content)))
        except (ValueError, KeyError, TypeError) as problem:
            raise LogUnfit(
                f"{location}/{FOLDER}/{name} has a line that names no file, so it is torn. Restore it, or use another path."
            ) from problem
        for path in shown:
            is_own = is_own or path in named
            if not is_own or path in named:
                continue
            raise LogUnfit(
                f"{location}/{FOLDER}/{name} shows readers {path}, and the ledger names no such file: the ledger was "
                "restored to an earlier moment, or another query wrote to this path. What the ledger does not know would land "
                "again and be visible twice. Restore the ledger of a later moment, or start afresh with another path."
            )


def _paths(lines: Iterable[str]) -> Iterator[str]:
    return (str(json.loads(line)["path"]) for line in lines)
