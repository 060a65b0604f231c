"""The monitor: every stream is measured every few seconds, whether its driver runs or not.

Each server of sources and of ledgers is asked once a round for all of its streams, by one client. A round that a store makes
slow is its own: the others continue, and stores that did not answer share half of the threads, so they cannot take them all.
Checkpoints are measured, and files of folders counted, beside the rounds: see `monitor.checkpoints` and `monitor.file_counts`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from exactlyonce.api.status import Phase
from exactlyonce.assembly import LedgerKey, SourceKey, ledger_fleet, source_fleet
from exactlyonce.checkpoint.store import Size, SizedStore
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.connector import LedgerFleet
from exactlyonce.monitor.checkpoints import CheckpointSizes
from exactlyonce.monitor.file_counts import FileCounts
from exactlyonce.monitor.gathering import Watched, query_ledger, query_source
from exactlyonce.monitor.ledger_sizes import LedgerSizes
from exactlyonce.monitor.replays import ReplaysView
from exactlyonce.monitor.snapshot import Snapshot, after_files, after_ledger, after_source_problem, with_memory
from exactlyonce.monitor.targets import Life, StreamKey, Target
from exactlyonce.source.connector import SourceFleet
from exactlyonce.source.counted_files import FileCounter

log = logging.getLogger("exactlyonce.monitor")

_LEDGER_FIRST_SECONDS = 5.0

MAY_HAVE_A_DRIVER = frozenset({Phase.LAUNCHING, Phase.RUNNING, Phase.DRAINING})

Client = TypeVar("Client", SourceFleet, LedgerFleet)


@dataclass(frozen=True)
class Clients:
    """How the clients of stores are made."""

    source: Callable[[SourceKey], SourceFleet] = source_fleet
    ledger: Callable[[LedgerKey], LedgerFleet] = ledger_fleet


@dataclass(frozen=True, slots=True)
class StreamView:
    """All that the monitor can tell of one stream; None where it has not been told or has not asked."""

    key: StreamKey
    target: Target | None
    life: Life | None
    snapshot: Snapshot | None
    checkpoint: Size | None = None
    replays: ReplaysView | None = None


@dataclass
class _Store(Generic[Client]):
    """One store with its one client; `answered` is False where it did not when it was last asked."""

    kind: str
    make: Callable[[], Client]
    call: Callable[[Client, Sequence[Watched]], ExactlyOnceError | None]
    told: Callable[[Snapshot, str], Snapshot]
    client: Client | None = None
    answered: bool = True
    asking: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.asking is not None and not self.asking.done()

    def run(self, streams: Sequence[Watched]) -> bool:
        """Ask about all streams, and return whether the store answered. Blocking."""
        try:
            if self.client is None:
                self.client = self.make()
            problem = self.call(self.client, streams)
        except Exception as failure:
            if not isinstance(failure, ExactlyOnceError):
                log.exception("streams could not be measured: unexpected error")
            told = str(failure)
            for watched in streams:
                watched.learn(lambda before: self.told(before, told))
            return False
        return problem is None

    def close(self) -> None:
        if self.client is not None:
            self.client.close()


@dataclass
class Monitor:
    """Measures streams. `run` and `round` are for one event loop, everything else may come from any thread.

    `on_problem` is told of each store that did not answer: "source", "ledger" or "checkpoint".
    """

    clients: Clients = field(default_factory=Clients)
    workers: int = 4
    on_problem: Callable[[str], None] = lambda store: None
    checkpoints: CheckpointSizes = field(default_factory=CheckpointSizes)
    ledgers: LedgerSizes = field(default_factory=LedgerSizes)
    files: FileCounts = field(default_factory=FileCounts)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _watched: dict[StreamKey, Watched] = field(default_factory=dict)
    _lives: dict[StreamKey, Life] = field(default_factory=dict)
    _replays: dict[StreamKey, ReplaysView] = field(default_factory=dict)
    _stores: dict[SourceKey | LedgerKey, _Store[Any]] = field(default_factory=dict)
    _executor: ThreadPoolExecutor | None = None
    _silent: asyncio.Semaphore | None = None

    def watch(self, target: Target, checkpoint: SizedStore | None = None, files: FileCounter | None = None) -> None:
        """Measure a stream from now on, or measure it there from now on; what was known of the same ledger stays.

        `checkpoint` is None where the operator does not reach it, `files` where the source is no folder.
        """
        self.checkpoints.watch(target.key, checkpoint)
        self.files.watch(target.key, files)
        with self._guard:
            known = self._watched.get(target.key)
            if known is None:
                self._watched[target.key] = Watched(target, self._remembered(target.key))
            elif known.target != target:
                same = (known.target.stream_id, known.target.ledger_space) == (target.stream_id, target.ledger_space)
                # What was counted of a folder may have been of another one, or with another start.
                snapshot = after_files(known.snapshot, None) if same else self._remembered(target.key)
                self._watched[target.key] = Watched(target, snapshot)

    def noted(self, key: StreamKey, life: Life) -> None:
        """Note how a stream fares; it need not be one that can be measured."""
        with self._guard:
            self._lives[key] = life
            watched = self._watched.get(key)
        if watched is not None and life.oldest_at is not None:
            watched.learn(partial(with_memory, timestamp=life.oldest_at.timestamp()))

    def noted_replays(self, key: StreamKey, view: ReplaysView | None) -> None:
        """Note how the replays of a stream fare; None where none is left."""
        with self._guard:
            if view is None:
                self._replays.pop(key, None)
            else:
                self._replays[key] = view

    def forget(self, key: StreamKey) -> None:
        """Drop a stream that is gone, with its series."""
        with self._guard:
            self._watched.pop(key, None)
            self._lives.pop(key, None)
            self._replays.pop(key, None)
            used = {watched.target.ledger for watched in self._watched.values()}
        self.checkpoints.forget(key)
        self.files.forget(key)
        self.ledgers.keep(used)

    def snapshot(self, key: StreamKey) -> Snapshot | None:
        """Return what is known of a stream; None where it is not watched or nothing was asked yet."""
        with self._guard:
            watched = self._watched.get(key)
        return None if watched is None or not watched.snapshot.was_asked else watched.snapshot

    def streams(self) -> list[StreamView]:
        """Return all that is known of every stream, in the order of their names."""
        with self._guard:
            keys = sorted(self._watched.keys() | self._lives.keys())
            known = [(key, self._watched.get(key), self._lives.get(key), self._replays.get(key)) for key in keys]
        return [
            StreamView(key, None, life, None, None, replays)
            if watched is None
            else StreamView(key, watched.target, life, watched.snapshot, self.checkpoints.size(key), replays)
            for key, watched, life, replays in known
        ]

    async def run(self, interval_seconds: float, may_measure: Callable[[], bool]) -> None:
        """Begin a round every `interval_seconds` while `may_measure` says so, until cancelled."""
        try:
            while True:
                if may_measure():
                    self._begin_round()
                await asyncio.sleep(interval_seconds)
        finally:
            await self._end()

    async def round(self) -> None:
        """Measure every stream once and wait for it."""
        await asyncio.gather(*self._begin_round())

    def _remembered(self, key: StreamKey) -> Snapshot:
        life = self._lives.get(key)
        oldest = None if life is None or life.oldest_at is None else life.oldest_at.timestamp()
        return Snapshot(remembered_timestamp=oldest)

    def _begin_round(self) -> list[asyncio.Task[None]]:
        """Ask every store that is not still being asked; a source after the ledgers of its streams, if they are quick."""
        with self._guard:
            watched = list(self._watched.values())
        ledger_servers: dict[LedgerKey, list[Watched]] = defaultdict(list)
        source_servers: dict[SourceKey, list[Watched]] = defaultdict(list)
        for stream in watched:
            ledger_servers[stream.target.ledger].append(stream)
            source_servers[stream.target.server].append(stream)
        self._close_unused({*ledger_servers, *source_servers})
        ledgers = {key: self._asked(self._store_of(key), those, []) for key, those in ledger_servers.items()}
        sources = [
            self._asked(self._store_of(key), those, [ledgers[stream.target.ledger] for stream in those])
            for key, those in source_servers.items()
        ]
        counting = self.files.begin(self._at_rest(watched), self._have_landed(), self.on_problem)
        return [*ledgers.values(), *sources, *self.checkpoints.begin(self.on_problem), *counting]

    def _at_rest(self, watched: Sequence[Watched]) -> list[Watched]:
        """Return the streams of which no driver runs; of the others, the driver says how many files wait."""
        with self._guard:
            at_rest = {key for key, life in self._lives.items() if life.phase not in MAY_HAVE_A_DRIVER}
        for stream in watched:
            if stream.target.key not in at_rest and stream.snapshot.files is not None:
                stream.learn(partial(after_files, seen=None))
        return [stream for stream in watched if stream.target.key in at_rest]

    def _have_landed(self) -> frozenset[StreamKey]:
        with self._guard:
            return frozenset(key for key, life in self._lives.items() if life.has_landed)

    def _store_of(self, key: SourceKey | LedgerKey) -> _Store[Any]:
        if key not in self._stores:
            self._stores[key] = (
                _Store("source", lambda: self.clients.source(key), query_source, after_source_problem)
                if isinstance(key, SourceKey)
                else _Store("ledger", lambda: self.clients.ledger(key), partial(self._query_ledger, key), after_ledger)
            )
        return self._stores[key]

    def _query_ledger(self, key: LedgerKey, client: LedgerFleet, streams: Sequence[Watched]) -> ExactlyOnceError | None:
        problem = query_ledger(client, streams)
        if problem is None:
            self.ledgers.measure(key, client, {watched.target.ledger_space for watched in streams})
        return problem

    def _asked(self, store: _Store[Any], streams: list[Watched], first: list[asyncio.Task[None]]) -> asyncio.Task[None]:
        if store.asking is None or store.asking.done():
            store.asking = asyncio.create_task(self._query(store, streams, first))
        return store.asking

    async def _query(self, store: _Store[Any], streams: list[Watched], first: list[asyncio.Task[None]]) -> None:
        if first:
            await asyncio.wait(set(first), timeout=_LEDGER_FIRST_SECONDS)
        if self._executor is None or self._silent is None:
            self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="monitor")
            self._silent = asyncio.Semaphore(max(1, self.workers // 2))
        loop = asyncio.get_running_loop()
        async with nullcontext() if store.answered else self._silent:
            store.answered = await loop.run_in_executor(self._executor, store.run, streams)
        if not store.answered:
            self.on_problem(store.kind)

    def _close_unused(self, used: set[SourceKey | LedgerKey]) -> None:
        self.ledgers.keep(used)
        for key in [key for key, store in self._stores.items() if key not in used and not store.is_busy]:
            store = self._stores.pop(key)
            if self._executor is not None:
                self._executor.submit(store.close)

    async def _end(self) -> None:
        """Close what is idle; a store that does not answer is left to the end of the process."""
        self.checkpoints.end()
        self.files.end()
        if self._executor is not None:
            self._close_unused(set())
            await asyncio.to_thread(self._executor.shutdown, wait=not any(it.is_busy for it in self._stores.values()))
            self._executor = self._silent = None
