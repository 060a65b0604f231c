"""The stores of a stream as a pass has them: opened when the first is asked, from the secrets as they are then, and guarded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.checkpoint.store import CreateOutcome, Entry, ErasableStore, LogStore
from exactlyonce.control.bulkheads import Shown, Store
from exactlyonce.errors import PassTooLong
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.room import Room
from exactlyonce.ledger.rows import DatabaseIdentity, LedgerView
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import NotShown, ShownStream, ShowsLanded, Source, SourceView

PASS_SECONDS = 600.0
"""How long one pass may continue asking its stores; with the longest call it stays below what `health` condemns."""


@dataclass(frozen=True)
class Opened:
    """The stores of one stream with the place that each call takes at each of them."""

    ledger: Ledger
    at_ledger: Store
    checkpoints: LogStore
    at_checkpoints: Store
    source: Source
    at_source: Store


@dataclass(frozen=True, slots=True)
class Erasable:
    """Where a stream's rows and checkpoint are, with the place that each call takes there."""

    ledger: OpenLedger
    at_ledger: Store
    checkpoints: ErasableStore
    at_checkpoints: Store


@dataclass(frozen=True)
class Opening:
    """Opens the stores of a stream once per pass, all of them: what is missing is told before anything is decided.

    After `until` by `clock` none of them is asked anything more: each call has its limit, and many that stay just within
    theirs would still hold a worker until the liveness probe ends the process.
    """

    open: Callable[[], Opened]
    clock: Callable[[], float] = time.monotonic
    until: float = math.inf

    @classmethod
    def for_a_pass(cls, open_stores: Callable[[], Opened], clock: Callable[[], float]) -> Opening:
        """Return the opening of a pass that begins now."""
        return cls(open_stores, clock, clock() + PASS_SECONDS)

    @property
    def opened(self) -> Opened:
        """The stores.

        Raises:
            PassTooLong: if the pass has asked stores for as long as it may.
        """
        if self.clock() > self.until:
            raise PassTooLong("The stores of this stream have answered too slowly for one pass; it will be retried.")
        return self._opened

    @cached_property
    def _opened(self) -> Opened:
        return self.open()


@dataclass(frozen=True)
class GuardedLedger:
    """A `Ledger` whose calls take a place each."""

    opening: Opening

    @property
    def room(self) -> Room | None:
        """Return how many failed ranges the ledger holds; nobody is asked for it."""
        return self.opening.opened.ledger.room

    @contextmanager
    def transaction(
        self, *, evicting: bool = False, lasting: bool = True, dispensable: bool = False
    ) -> Iterator[LedgerTransaction]:
        """Open a transaction; its place is held until it ends."""
        opened = self.opening.opened
        opening = opened.ledger.transaction(evicting=evicting, lasting=lasting, dispensable=dispensable)
        with opened.at_ledger.entered(), opening as transaction:
            yield transaction

    def view(self, stream_id: str) -> LedgerView | None:
        """Return what is committed of a stream."""
        opened = self.opening.opened
        with opened.at_ledger.entered():
            return opened.ledger.view(stream_id)

    def database_identity(self) -> DatabaseIdentity:
        """Return which database this is."""
        opened = self.opening.opened
        with opened.at_ledger.entered():
            return opened.ledger.database_identity()

    def identity(self) -> str:
        """Return which ledger this is."""
        opened = self.opening.opened
        with opened.at_ledger.entered():
            return opened.ledger.identity()

    def prepare(self) -> None:
        """Make the schema where it is missing."""
        opened = self.opening.opened
        with opened.at_ledger.entered():
            opened.ledger.prepare()


@dataclass(frozen=True)
class GuardedLogStore:
    """A `LogStore` whose calls take a place each. `location` is as the resource names it."""

    location: str
    opening: Opening

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            return opened.checkpoints.list(folder)

    def read(self, path: str) -> bytes:
        """Return a file's content, or raise FileMissing."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            return opened.checkpoints.read(path)

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            return opened.checkpoints.create(path, content)

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file that holds `expected`."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            return opened.checkpoints.replace(path, expected, content)

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return every file below a folder with its size."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            return opened.checkpoints.tree(folder)

    def copy(self, source: str, target: str) -> None:
        """Make `target` a copy of a file, or raise FileMissing; a place is taken for each."""
        opened = self.opening.opened
        with opened.at_checkpoints.entered():
            opened.checkpoints.copy(source, target)


@dataclass(frozen=True)
class GuardedSource:
    """A `Source` whose questions take a place each.

    `at_shown` is where landed positions are shown: another server, whose places no pass is held back for.
    """

    address: str
    opening: Opening
    at_shown: Shown

    @property
    def codec(self) -> PositionCodec:
        """How Spark's logs hold its positions."""
        return self.opening.opened.source.codec

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what the source holds."""
        opened = self.opening.opened
        with opened.at_source.entered():
            return opened.source.view(also, offsets, stands)

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Resolve where the stream starts, or where the partitions in `only` do."""
        opened = self.opening.opened
        with opened.at_source.entered():
            return opened.source.start(view, only)

    def origin_ids(self, origins: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of the origins that the source holds now."""
        source = self.opening.opened.source
        with self.at_shown.entered():
            return source.origin_ids(origins) if isinstance(source, ShowsLanded) else {}

    def show_landed(self, stream: ShownStream, landed: Positions) -> NotShown | None:
        """Show where the stream has landed, if its source does that."""
        opened = self.opening.opened
        if not isinstance(opened.source, ShowsLanded):
            return None
        with self.at_shown.entered():
            return opened.source.show_landed(stream, landed)
