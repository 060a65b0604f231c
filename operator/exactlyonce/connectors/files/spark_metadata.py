"""Make the files of landed batches visible to Spark's readers: write `_spark_metadata` after the ledger.

The ledger decides. Everything here is derived from its manifests, is the same whoever derives it, and may be done again: a
driver that died between the ledger and the log is finished by the next one, and two drivers at once write the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from exactlyonce.checkpoint.store import AlreadyExists, OutputStore
from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.connectors.files.show_merged import with_merged
from exactlyonce.connectors.files.shown import batches_shown, latest_shown, read_entry, require_named
from exactlyonce.connectors.files.spark_log import (
    FOLDER,
    LogUnfit,
    entries_before,
    is_compaction,
    lines_of,
    missing_entries,
    name_of,
    parse,
    render,
    require_not_ahead,
)
from exactlyonce.positions.ranges import BatchNumber

CLEANUP_DELAY_SECONDS = 600.0
"""How long entries that a compaction has taken in are kept for readers that began before it, as Spark does."""

Reached = Callable[[str, int], None]


class SparkMetadata:
    """The log of one output folder. `reached` is told of every point at which a test may end the process.

    `has_former`: a query of Spark's own has written the folder before.
    """

    def __init__(
        self,
        store: OutputStore,
        location: str,
        reached: Reached = lambda point, batch: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_former: bool = False,
    ) -> None:
        self._store = store
        self._location = location
        self._reached = reached
        self._clock = clock
        self._has_former = has_former
        self._compacted: list[tuple[BatchNumber, float]] = []
        self._latest: BatchNumber | None = None
        self._is_known = False
        self._doubted: tuple[BatchNumber, bytes] | None = None

    def recover(self, manifests: Mapping[BatchNumber, Manifest], landed: BatchNumber | None) -> None:
        """Write what an earlier process landed and did not come to write; `manifests` are all of the ledger.

        An entry that did not fit what was published before is judged again, by these: a compaction may have merged files.

        A log without an entry is begun before any file is written: Spark's readers take a folder without one for a folder of
        files that all count, those of attempts that died included.

        Raises:
            LogUnfit: if the log knows more than the ledger, or something else.
        """
        latest = self._latest_shown()
        if self._doubted is not None:
            self._require_fit(*self._doubted, manifests)
        require_not_ahead(latest, landed, has_former=self._has_former)
        require_named(self._store, self._location, latest, manifests.values())
        begins = set() if latest is not None or landed is None else {landed}
        self._write_missing(manifests, manifests.keys() | begins)

    def publish(self, manifests: Mapping[BatchNumber, Manifest]) -> None:
        """Write the entries that are missing up to the latest of these batches, which have all landed.

        The folder is listed once. A log that somebody removes under a running process is not started over by it: the next
        process writes it from the ledger's manifests.

        Raises:
            LogUnfit: if an entry holds something else than the ledger says.
        """
        self._write_missing(manifests, manifests)

    def _write_missing(self, manifests: Mapping[BatchNumber, Manifest], shown: Collection[BatchNumber]) -> None:
        latest = self._latest if self._is_known else self._latest_shown()
        for batch in missing_entries(latest, shown):
            self._write(batch, manifests)
            self._latest = batch
        self._clean_up()

    def _latest_shown(self) -> BatchNumber | None:
        self._latest, self._is_known = latest_shown(self._store), True
        return self._latest

    def _write(self, batch: BatchNumber, manifests: Mapping[BatchNumber, Manifest]) -> None:
        name, lines = name_of(batch), lines_of(manifests.get(batch), self._location)
        if is_compaction(batch):
            lines = [*self._compacted_lines(batch), *lines]
        content = render(lines)
        self._reached("publish.prepared", batch)
        outcome = self._store.create(f"{FOLDER}/{name}", content)
        if isinstance(outcome, AlreadyExists) and outcome.content != content:
            self._require_fit(batch, content, manifests)
        self._reached("publish.created", batch)
        if is_compaction(batch):
            self._compacted.append((batch, self._clock()))

    def _require_fit(self, batch: BatchNumber, content: bytes, manifests: Mapping[BatchNumber, Manifest]) -> None:
        """Require that an entry shows what this process would show, but for files of which one shows what they became.

        Another process may have made it of what it read before or after a compaction, or a compaction may have changed it.

        Raises:
            LogUnfit: if it does not; `recover` judges it again.
        """
        name = name_of(batch)
        self._doubted = batch, content
        found = self._read(name, f"it cannot be compared with batch {batch} in the ledger")
        try:
            fits = self._merged(name, found, manifests) == self._merged(name, content, manifests)
        except (LogUnfit, ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise LogUnfit(
                f"{self._location}/{FOLDER}/{name} holds other files than batch {batch} in the ledger: another query writes to "
                "this path. Use a path of this stream alone."
            )
        self._doubted = None

    def _read(self, name: str, without_it: str) -> bytes:
        return read_entry(self._store, self._location, name, without_it)

    def _merged(self, name: str, content: bytes, manifests: Mapping[BatchNumber, Manifest]) -> list[str]:
        lines, _ = with_merged(self._location, name, parse(name, content), manifests.values())
        return sorted(lines)

    def _compacted_lines(self, batch: BatchNumber) -> list[str]:
        """Return the lines of all batches before one; where the log begins with it, there are none."""
        if self._latest is None:
            return []
        lines: list[str] = []
        for number in entries_before(batch):
            name = name_of(number)
            lines += parse(name, self._read(name, f"batch {batch} cannot put the log together"))
        return lines

    def _clean_up(self) -> None:
        """Remove what no reader needs: all before the last compaction but one, once the last is old enough."""
        now = self._clock()
        old = [batch for batch, written in self._compacted if now - written >= CLEANUP_DELAY_SECONDS]
        if not old:
            return
        oldest_kept = entries_before(max(old)).start
        self._compacted = [(batch, written) for batch, written in self._compacted if batch > max(old)]
        held = sorted(batches_shown(self._store))
        self._store.delete([f"{FOLDER}/{name_of(batch)}" for batch in held if batch < oldest_kept])
        self._reached("publish.cleaned-up", max(old))
