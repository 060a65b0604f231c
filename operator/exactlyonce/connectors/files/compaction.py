"""Merge small files, beside drivers that run: no reader counts a row twice or misses one, whoever dies where (docs/adr/0031).

The order of a round: one transaction marks the attempt, so that its files are nobody's orphans · the merged files are written ·
one transaction names them in the place of those that they were made of, if nothing of that has changed since the mark · one
dates again what Spark's readers are still shown · they are shown the merged files by one write of the compaction that they
begin from. What was replaced is removed much later, as orphans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.compaction_plan import (
    Merge,
    MergeUnfit,
    dated,
    next_merges,
    planned,
    switched,
    without,
)
from exactlyonce.connectors.files.manifest import Author, DataFile, Manifest, Write
from exactlyonce.connectors.files.show_merged import show_merged
from exactlyonce.connectors.files.shown import latest_shown
from exactlyonce.connectors.files.spark_log import latest_compaction
from exactlyonce.connectors.files.spec import ManifestKind
from exactlyonce.connectors.files.standing import Standing, manifests_in, standing
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.errors import CommitOutcomeUnknown, ExactlyOnceError
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.positions.ranges import BatchNumber

POINTS = (
    "compact.marked",
    "compact.file-written",
    "compact.files-written",
    "compact.before-switch",
    "compact.switched",
    "compact.dated",
    "compact.shown",
)
"""Every point between two effects of a round, in order, at which a test ends the process."""

SWITCH_TRIES = 3
_MOST_TOLD = 10

_UNCHANGED = "These files were not changed by this one"
_UNKNOWN = "This one may have merged them before that; `exactlyonce files` lists what counts now"


class CompactionOvertaken(ExactlyOnceError):
    """Another compaction, or a ledger that was restored, has changed what this one was to replace or to show."""


class Merger(Protocol):
    """Writes the rows of several files into one."""

    def merge(self, files: Sequence[DataFile], path: str, now_milliseconds: int) -> DataFile:
        """Write the file at `path`, lastingly, and return what it holds: the same rows, nothing else.

        Raises:
            MergeUnfit: if it would not hold exactly these; nothing counts of what was written, and other files can be merged.
            Refused: if nothing can be merged.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Round:
    """What one transaction marked: `before` are all manifests as they are then."""

    attempt: str
    merges: tuple[Merge, ...]
    before: Mapping[BatchNumber, Manifest]


@dataclass
class Compaction:
    """The compaction of one stream's folder. `reached` is told of every point at which a test may end the process."""

    store: FolderStore
    ledger: Ledger
    stream_id: str
    target_bytes: int
    merger: Merger
    reached: Callable[[str], None] = field(default=lambda point: None)
    clock: Callable[[], float] = time.time
    _unfit: list[MergeUnfit] = field(init=False, default_factory=list)
    _left_out: set[str] = field(init=False, default_factory=set)

    def run(self) -> Iterator[Merge]:
        """Merge what can be merged, round by round, and yield what counts as one file now; what a former run left is finished.

        Raises:
            MergeUnfit: at the end, if files were left out that do not fit together; all others have been merged.
            Refused: if the folder does not fit, or a file is missing; nothing was changed in this round.
            CompactionOvertaken: if another compaction was at work.
        """
        self._unfit.clear()
        self._left_out.clear()
        found = self._standing()
        self._show(found)
        gone = _replaced_and_gone(self.store, found.manifests)  # once: what this run replaces stays for a day
        while (marked := self._mark(self._standing(), gone)) is not None:
            self.reached("compact.marked")
            merged = self._merged(marked)
            self.reached("compact.files-written")
            if not merged:
                continue  # the next mark takes this one away
            self._switch(marked, merged)
            self.reached("compact.switched")
            self._show(self._standing())
            self.reached("compact.shown")
            yield from (merge for merge, _ in merged)
        if self._unfit:
            raise _told(self._unfit)

    def _standing(self) -> Standing:
        return standing(self.store, self.ledger, self.stream_id, latest_shown(self.store))

    def _mark(self, found: Standing, gone: frozenset[str]) -> _Round | None:
        """Record an attempt, which ends every other one: whoever is at work finds another mark and changes nothing.

        Where nothing can be merged, take the marks away that are left, and return None.
        """
        if not self._merges(found, found.manifests) and not _tidied(found.manifests, gone, None):
            return None
        return self._record_mark(found, gone)

    @rerun_after_lost_race
    def _record_mark(self, found: Standing, gone: frozenset[str]) -> _Round | None:
        with self.ledger.transaction() as transaction:
            stream = transaction.lock_stream(self.stream_id, Lock.UPDATE)
            if stream is None or stream.token != found.stream.token:
                raise self._overtaken(_UNCHANGED)
            manifests = manifests_in(transaction, self.stream_id)
            merges = next_merges(self._merges(found, manifests))
            attempt = Write.draw(Author.of(stream), merges[-1].batch) if merges else None
            changed = _tidied(manifests, gone, attempt)
            _write(transaction, self.stream_id, changed)
        return None if attempt is None else _Round(attempt.name, merges, manifests | changed)

    def _merges(self, found: Standing, manifests: Mapping[BatchNumber, Manifest]) -> tuple[Merge, ...]:
        """Return what can be merged of what has not been found not to fit."""
        return _merges(found, without(manifests, self._left_out), self.target_bytes)

    def _merged(self, marked: _Round) -> list[tuple[Merge, DataFile]]:
        """Write the merged files, and leave out for the rest of this run what does not fit together."""
        merged = []
        for number, merge in enumerate(marked.merges):
            path = f"{merge.folder}{marked.attempt}-part-{number:05}.parquet"
            try:
                merged.append((merge, self.merger.merge(merge.files, path, self._now_milliseconds())))
            except MergeUnfit as problem:
                self._unfit.append(problem)
                self._left_out.update(file.path for file in merge.files)
            except FilesLost:
                # Another one may have merged them meanwhile, and they were removed since.
                now = self._standing().manifests
                if not is_unchanged(now, marked.before, (merge.batch for merge in marked.merges)):
                    raise self._overtaken(_UNCHANGED) from None
                raise
            else:
                self.reached("compact.file-written")
        return merged

    def _switch(self, marked: _Round, merged: Sequence[tuple[Merge, DataFile]]) -> None:
        """Let merged files count in the place of those that they were made of, in one transaction.

        Raises:
            CompactionOvertaken: if what it read has changed.
            CommitOutcomeUnknown: if the outcome could not be settled; either all of them count or none.
        """
        outcome = _UNCHANGED
        for remaining in reversed(range(SWITCH_TRIES)):
            try:
                self._switch_once(marked, merged, outcome)
                break
            except CommitOutcomeUnknown:
                outcome = _UNKNOWN
                if not remaining:
                    raise

    @rerun_after_lost_race
    def _switch_once(self, marked: _Round, merged: Sequence[tuple[Merge, DataFile]], outcome: str) -> None:
        with self.ledger.transaction() as transaction:
            stream = transaction.lock_stream(self.stream_id, Lock.UPDATE)
            found = manifests_in(transaction, self.stream_id)
            after = switched(marked.before, merged, self._now_milliseconds())
            with_mark = marked.merges[-1].batch  # of the latest merge, which may not have fit
            after.setdefault(with_mark, marked.before[with_mark])
            changed = {batch: replace(manifest, merging=None) for batch, manifest in after.items()}
            if all(_undated(found.get(batch)) == _undated(manifest) for batch, manifest in changed.items()):
                return  # it was committed, and the answer was lost
            if stream is None or not is_unchanged(found, marked.before, changed):
                raise self._overtaken(outcome)
            _write(transaction, self.stream_id, changed)
            self.reached("compact.before-switch")

    def _show(self, found: Standing) -> None:
        if found.tenant.manifest == ManifestKind.SPARK_METADATA:
            show_merged(self.store, found.manifests.values(), self._replacing)

    def _replacing(self, merged: frozenset[str]) -> None:
        """Let the day for which files stay begin now: until now Spark's readers have been shown what these replace."""
        self._date(merged)
        self.reached("compact.dated")

    @rerun_after_lost_race
    def _date(self, merged: frozenset[str]) -> None:
        with self.ledger.transaction() as transaction:
            stream = transaction.lock_stream(self.stream_id, Lock.UPDATE)
            manifests = manifests_in(transaction, self.stream_id)
            recorded = {it.by for manifest in manifests.values() for it in manifest.replaced}
            if stream is None or not merged <= recorded:
                raise self._overtaken(_UNKNOWN)
            _write(transaction, self.stream_id, dated(manifests, merged, self._now_milliseconds()))

    def _now_milliseconds(self) -> int:
        return int(self.clock() * 1000)

    def _overtaken(self, outcome: str) -> CompactionOvertaken:
        return CompactionOvertaken(
            f"The files of {self.stream_id} that were to be merged have changed in the ledger meanwhile: another compaction "
            f"was at work, or the ledger was restored. {outcome}. Run it again."
        )


def compactable(found: Standing, target_bytes: int) -> tuple[Merge, ...]:
    """Return what a compaction would merge. Performs no I/O."""
    return _merges(found, found.manifests, target_bytes)


def is_unchanged(
    found: Mapping[BatchNumber, Manifest],
    before: Mapping[BatchNumber, Manifest],
    changed: Iterable[BatchNumber],
) -> bool:
    """Return whether the manifests that are to change, the marked one among them, are as they were."""
    return all(found.get(batch) == before[batch] for batch in changed)


def _told(unfit: Sequence[MergeUnfit]) -> MergeUnfit:
    """Return what is said of all the files that were left out."""
    more = len(unfit) - _MOST_TOLD
    told = [str(problem) for problem in unfit[:_MOST_TOLD]]
    return MergeUnfit("\n".join([*told, f"{more} more do not fit either."] if more > 0 else told))


def _merges(found: Standing, manifests: Mapping[BatchNumber, Manifest], target_bytes: int) -> tuple[Merge, ...]:
    """Return what can be merged. Of files that Spark's readers are shown, only what one compaction of Spark's log shows.

    A later batch is shown, or will be, by an entry of its own. Its rows would be shown twice once its file counted elsewhere.
    """
    if found.tenant.manifest != ManifestKind.SPARK_METADATA:
        return planned(manifests, None, target_bytes)
    compaction = latest_compaction(found.latest)
    return () if compaction is None else planned(manifests, BatchNumber(compaction + 1), target_bytes)


def _tidied(
    manifests: Mapping[BatchNumber, Manifest], gone: frozenset[str], attempt: Write | None
) -> dict[BatchNumber, Manifest]:
    """Return the manifests that change where this attempt is the only one, and what is wholly gone is not recorded any more."""
    after = {
        batch: replace(
            manifest,
            replaced=tuple(it for it in manifest.replaced if not gone.issuperset(it.paths)),
            merging=None if attempt is None or batch != attempt.batch else attempt.name,
        )
        for batch, manifest in manifests.items()
    }
    return {batch: manifest for batch, manifest in after.items() if manifest != manifests[batch]}


def _undated(manifest: Manifest | None) -> Manifest | None:
    """Return a manifest without the moments at which files were replaced: another compaction may have dated them again."""
    if manifest is None:
        return None
    return replace(manifest, replaced=tuple(replace(it, since_milliseconds=0) for it in manifest.replaced))


def _replaced_and_gone(store: FolderStore, manifests: Mapping[BatchNumber, Manifest]) -> frozenset[str]:
    """Return the replaced files that were removed since."""
    gone = {path for manifest in manifests.values() for it in manifest.replaced for path in it.paths}
    for path, _ in store.walk("") if gone else ():
        gone.discard(path)
    return frozenset(gone)


def _write(transaction: LedgerTransaction, stream_id: str, changed: Mapping[BatchNumber, Manifest]) -> None:
    for batch, manifest in changed.items():
        transaction.write_committable(stream_id, batch, manifest.to_json())
