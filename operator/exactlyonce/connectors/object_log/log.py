"""The log: fold it, append to it, keep it short. docs/adr/0025 names the objects and says why for each request.

Entry k+1 is created on the condition that its name is free. That decides between writers that know entry k. It does not stop a
writer that slept while the names it knew were pruned, so the names after an entry are listed before anything follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from exactlyonce.checkpoint.store import AlreadyExists, FileMissing, FileTooLarge, ObjectStore
from exactlyonce.connectors.object_log import archives as archiving
from exactlyonce.connectors.object_log.bounds import BOUNDS, NOTHING, Bounds, LogFull, LogTooLarge, frees
from exactlyonce.connectors.object_log.documents import Entry, LogDamaged, Origin, Snapshot
from exactlyonce.connectors.object_log.fold import Fold
from exactlyonce.connectors.object_log.names import Names, entry_name, snapshot_name
from exactlyonce.connectors.object_log.origin import ORIGIN, find_origin, make_origin
from exactlyonce.connectors.object_log.state import Changes, LedgerState, Table
from exactlyonce.errors import CommitOutcomeUnknown, ExactlyOnceError, LedgerRefused, LostRace, StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber

SNAPSHOT_EVERY = 100
CREATE_TRIES = 4
FOLD_TRIES = 5

log = logging.getLogger("exactlyonce.object_log")


class LogMissing(LedgerRefused):
    """There is no log where one is expected."""


class ObjectLog:
    """One log in one folder of a store, or at the store's own location; threads may share it.

    `reached` is told a named point between every two requests (POINTS of this package), for tests that end a process there.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str = "",
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        archived_from_bytes: int = archiving.ARCHIVED_FROM_BYTES,
        bounds: Bounds = BOUNDS,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._snapshot_every = snapshot_every
        self._archived_from_bytes = archived_from_bytes
        self.bounds = bounds
        self._reached = reached
        self._known: Fold | None = None

    @property
    def location(self) -> str:
        """Where the log is, for a person."""
        return f"{self._store.location.rstrip('/')}/{self._folder}".rstrip("/")

    def origin(self) -> Origin | None:
        """Return which log this is; None where there is none."""
        return find_origin(self._store, self._path(ORIGIN))

    def make(self) -> Origin:
        """Return which log this is, and make one where there is none.

        Raises:
            LocationNotEmpty: if there is none, and files that are no log's are in its place; nothing was written.
        """
        return make_origin(self._store, self._folder, self._path(ORIGIN), self._reached)

    def fold(self) -> Fold:
        """Return what the log adds up to now; only what is new since the last time is read.

        Raises:
            LogMissing: if there is no log.
            LogDamaged: if entries are missing or do not follow on each other, however often they are listed.
            LogTooLarge: if there is more of it than is read.
        """
        problem: LedgerRefused | None = None
        for _ in range(FOLD_TRIES):
            known = self._known
            try:
                fold = self._folded(known or self._latest_snapshot())
            except (FileMissing, LogDamaged, LogTooLarge) as found:
                # Pruned, or recreated, since it was known; or listed while it was; or what is known has grown entry by entry
                # past snapshots that it did not need. The next try begins at a snapshot.
                problem = found if isinstance(found, LedgerRefused) else None
                self._known = None
                if isinstance(found, LogTooLarge) and known is None:
                    raise
            else:
                self._known = fold
                return fold  # another thread may have set what is known since
        raise problem or StoreUnreachable(
            f"The object log at {self.location} was pruned each time while it was read; it is read again later. "
            "If this continues, look for something other than its stream that writes there."
        )

    def append(self, fold: Fold, changes: Changes) -> None:
        """Make these changes of the state of `fold` the next entry.

        Raises:
            LostRace: if another entry was first; these changes have not taken effect and never will.
            CommitOutcomeUnknown: if that could not be settled; a request may still be under way.
            LogFull: if the log has no room for them; nothing was written.
        """
        entry = Entry.over(fold.number, fold.entry_id, changes)
        content = entry.render()
        if self.bounds.refusal(fold.weight, content, changes, self.location) is not None:
            may_fill = frees(changes, fold.state)
            fold = self._with_room(fold, may_fill=may_fill)
            entry = Entry.over(fold.number, fold.entry_id, changes)
            content = entry.render()
            refusal = self.bounds.refusal(fold.weight, content, changes, self.location, frees=may_fill)
            if refusal is not None:
                raise refusal
        made = self._written(fold, entry, content)
        if made.is_long(self._snapshot_every, self.bounds):
            self._keep_short(made)

    def committables(self, fold: Fold, stream_id: str) -> Mapping[BatchNumber, str]:
        """Return the committables of a stream that the state of `fold` has no more and refers to.

        Raises:
            LogDamaged: if one of their objects is missing or is not what was written there.
        """
        references = cast("Mapping[tuple[int, int], int]", fold.state.rows(Table.ARCHIVE, stream_id))
        return archiving.read_archived(self._store, self._path(fold.log_id), stream_id, references)

    def shorten(self) -> None:
        """Write a snapshot now, and delete what the last but one stands for."""
        self._keep_short(self.fold())

    def _folded(self, known: Fold) -> Fold:
        """Read what is newer than what is known."""
        names = self._names(known.log_id, entry_name(known.number))
        self._reached("log.listed")
        if known.number and not names.holds(known.number):
            raise LogDamaged(f"{self.location} no longer holds entry {known.number}: it was removed or replaced.")
        if names.newest_snapshot > known.number:
            known = self._at_snapshot(known.log_id, names.newest_snapshot)
        state, entry_id, number, weight = known.state, known.entry_id, known.number, known.weight
        for number in names.entries_after(known.number, self.location):
            content, where = self._read(known.log_id, entry_name(number))
            weight = weight.and_of(content)
            self.bounds.require_readable(weight, self.location)
            entry = Entry.parse(content, where)
            weight = weight.archiving(entry.changes)
            if (entry.number, entry.previous) != (number, entry_id):
                raise LogDamaged(f"{where} does not follow on entry {number - 1}; restore it from a backup.")
            state, entry_id = state.after(entry.changes), entry.entry_id
        newest = max(known.snapshot, names.newest_snapshot)
        return replace(known, number=number, entry_id=entry_id, state=state, snapshot=newest, weight=weight)

    def _latest_snapshot(self) -> Fold:
        """Begin at the newest snapshot, or at nothing; what is older is never looked at."""
        origin = self.origin()
        if origin is None:
            raise LogMissing(
                f"There is no ledger at {self.location}: it was removed, or never made. Restore it from a backup; a new one "
                "knows nothing of what has landed."
            )
        log_id = origin.log_id
        newest = self._names(log_id, "").newest_snapshot
        return self._at_snapshot(log_id, newest) if newest else Fold(log_id, 0, log_id, LedgerState())

    def _at_snapshot(self, log_id: str, number: int) -> Fold:
        content, where = self._read(log_id, snapshot_name(number))
        weight = NOTHING.and_of(content)
        self.bounds.require_readable(weight, self.location)
        snapshot = Snapshot.parse(content, where)
        if snapshot.number != number:
            raise LogDamaged(f"{where} is another snapshot; restore it from a backup.")
        return Fold(log_id, number, snapshot.entry_id, snapshot.state, number, weight, weight)

    def _read(self, log_id: str, name: str) -> tuple[bytes, str]:
        """Read an object; return its content and what a person calls it."""
        path = self._path(log_id, name)
        return self._store.read(path), self._where(path)

    def _where(self, path: str) -> str:
        return f"{self._store.location}/{path}"

    def _path(self, *parts: str) -> str:
        return "/".join(part for part in (self._folder, *parts) if part)

    def _names(self, log_id: str, first: str) -> Names:
        """List the names from `first` on."""
        # A number alone sorts before all names of that number.
        return Names.of(self._store.names_after(self._path(log_id), first.partition(".")[0]))

    def _create(self, fold: Fold, entry: Entry, content: bytes) -> None:
        """Create the entry, with the same content until the store has answered: a request without an answer may yet arrive."""
        path = self._path(fold.log_id, entry_name(entry.number))
        problem: StoreUnreachable | None = None
        for _ in range(CREATE_TRIES):
            try:
                outcome = self._store.create(path, content)
            except StoreUnreachable as found:
                problem = found
                self._reached("log.create-unanswered")
                continue
            if isinstance(outcome, AlreadyExists) and Entry.parse(outcome.content, path).entry_id != entry.entry_id:
                raise LostRace(f"Entry {entry.number} of {self.location} was written by somebody else first.")
            return
        raise self._unknown(entry, f"no answer came to its create ({problem})") from problem

    def _require_in_log(self, fold: Fold, entry: Entry) -> None:
        """Require that nothing is newer than the entry, or that what is newer was made over it.

        Where the name was pruned before the entry was created, what is newer was not; then the entry is in a gap that nobody
        reads. Where the next entry is pruned too (FileMissing), nothing tells whether this one was in time. It is read whether
        or not the list shows it: a list is not of one moment, and may show only the snapshot that followed.
        """
        if self._names(fold.log_id, entry_name(entry.number)).is_latest(entry.number):
            return
        if Entry.parse(*self._read(fold.log_id, entry_name(entry.number + 1))).previous != entry.entry_id:
            raise LostRace(f"Somebody else wrote entry {entry.number} of {self.location} first; it was pruned since.")

    def _written(self, fold: Fold, entry: Entry, content: bytes) -> Fold:
        """Make an entry the next one of the log, and return what it adds up to then."""
        self._reached("log.before-create")
        self._create(fold, entry, content)
        self._reached("log.created")
        try:
            self._require_in_log(fold, entry)
        except FileMissing:
            raise self._unknown(entry, "what followed on it is pruned") from None
        except (StoreUnreachable, FileTooLarge, LogDamaged) as problem:
            raise self._unknown(entry, f"what follows on it could not be read ({problem})") from problem
        self._reached("log.verified")
        state, weight = fold.state.after(entry.changes), fold.weight.and_of(content).archiving(entry.changes)
        made = replace(fold, number=entry.number, entry_id=entry.entry_id, state=state, weight=weight)
        self._known = made
        return made

    def _with_room(self, fold: Fold, *, may_fill: bool) -> Fold:
        """Return the same state after a snapshot, which weighs less than what it stands for; the fold itself if it is one.

        The snapshot is made after an entry that changes nothing: only who appended an entry writes its archives. Who may use
        the reserve (`may_fill`) does without a snapshot that the store does not take.
        """
        if fold.weight == fold.base:
            return fold
        empty = Entry.over(fold.number, fold.entry_id, {})
        fold = self._written(fold, empty, empty.render())
        try:
            fold = self._shortened(fold)
            self._prune(fold)
        except LogFull as problem:
            log.warning("No snapshot was written: %s", problem)  # the entry is refused as well, unless it frees room
        except StoreUnreachable:
            if not may_fill:
                raise
        return fold

    def _keep_short(self, fold: Fold) -> None:
        """Write a snapshot, and delete what the last but one stands for. Not done, it is done by who appends next."""
        try:
            self._prune(self._shortened(fold))
        except ExactlyOnceError as problem:
            text = "The object log at %s could not be kept short; it will be retried with the next entry: %s"
            log.warning(text, self.location, problem)

    def _shortened(self, fold: Fold) -> Fold:
        """Write a snapshot."""
        archives = archiving.archives_of(fold.state, fold.number, self._archived_from_bytes)
        archiving.write_archives(self._store, self._path(fold.log_id), archives, self.bounds, self._reached)
        fold = replace(fold, state=fold.state.after(archiving.references_to(archives)))
        # Whether or not the snapshot comes to be, what was archived is not archived again.
        self._known = fold
        path = self._path(fold.log_id, snapshot_name(fold.number))
        snapshot = Snapshot(fold.number, fold.entry_id, fold.state)
        content = self.bounds.require_object(self._where(path), snapshot.render())
        self._reached("log.before-snapshot")
        self._store.create(path, content)
        weight = NOTHING.and_of(content)
        fold = self._known = replace(fold, snapshot=fold.number, weight=weight, base=weight)
        self._reached("log.snapshot-created")
        return fold

    def _prune(self, fold: Fold) -> None:
        """Delete what the last but one snapshot stands for."""
        # Where no row is left, no state of this entry or a later one refers to what was archived before.
        pruned = self._names(fold.log_id, "").behind_two_snapshots(0 if fold.state.tables else fold.number)
        self._reached("log.before-prune")
        self._store.delete([self._path(fold.log_id, name) for name in pruned])
        self._reached("log.pruned")

    def _unknown(self, entry: Entry, why: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(f"Whether entry {entry.number} of {self.location} took effect is not known: {why}.")
