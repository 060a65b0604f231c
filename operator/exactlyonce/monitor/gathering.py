"""Ask the stores about streams: each server of sources and of ledgers once for all that use it. Blocking, bounded in time."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import partial

from exactlyonce.connectors.specs import Origins
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceUnreachable
from exactlyonce.ledger.connector import Landed, LedgerFleet
from exactlyonce.monitor.lag import positions_to_date
from exactlyonce.monitor.snapshot import (
    Snapshot,
    after_dating,
    after_ledger,
    after_source,
    after_source_problem,
)
from exactlyonce.monitor.targets import Target
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, Partition
from exactlyonce.source.connector import SourceFleet

_LARGEST = 2 * PARTITION_END
_NOT_COUNTED = (
    "The ledger's rows of this stream hold numbers that no driver writes; its lag is not known until they are mended."
)


@dataclass
class Watched:
    """One stream under watch, with what is known of it. The threads that ask its two stores change it step by step."""

    target: Target
    snapshot: Snapshot = field(default_factory=Snapshot)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, step: Callable[[Snapshot], Snapshot]) -> None:
        """Change what is known; no other step comes between."""
        with self._guard:
            self.snapshot = step(self.snapshot)


def query_ledger(fleet: LedgerFleet, streams: Sequence[Watched]) -> ExactlyOnceError | None:
    """Look where each stream has landed; return the problem of its server, if it has one."""
    spaces: dict[str, list[Watched]] = defaultdict(list)
    for watched in streams:
        spaces[watched.target.ledger_space].append(watched)
    trouble = None
    for space, those in spaces.items():
        since = {watched.target.stream_id: _counted_until(watched.snapshot) for watched in those}
        try:
            answers = fleet.landed(space, since)
        except ExactlyOnceError as problem:
            trouble = problem
            for watched in those:
                watched.learn(partial(after_ledger, answer=str(problem)))
            continue
        for watched in those:
            answer = answers.get(watched.target.stream_id)
            watched.learn(partial(after_ledger, answer=answer if is_counted(answer) else _NOT_COUNTED))
    return trouble


def is_counted(answer: Landed | None) -> bool:
    """Whether all that a ledger says of a stream are numbers that can be computed with and written.

    A tenant's database answers whatever it likes, and one question to a source counts for the streams of many tenants: a
    stream that cannot be computed with would leave the others without a lag.
    """
    if answer is None:
        return True
    names = [it.name for it in fields(answer) if it.name != "positions"]
    told = [value for name in names if (value := getattr(answer, name)) is not None]
    positions = answer.positions.values()
    return all(_is_number(it) for it in told) and all(type(it) is int and _is_number(it) for it in positions)


def _is_number(value: object) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value) < _LARGEST
    return isinstance(value, int | float) and abs(value) < _LARGEST


def query_source(fleet: SourceFleet, streams: Sequence[Watched]) -> ExactlyOnceError | None:
    """Measure each stream against its source; return the problem of its server, if it has one.

    Where the ledger stands is what it last said, before the source is asked.
    """
    try:
        found = fleet.origins([watched.target.source for watched in streams])
        origins = {name: keys for name, keys in found.items() if not isinstance(keys, ExactlyOnceError)}
        problems = {name: problem for name, problem in found.items() if isinstance(problem, ExactlyOnceError)}
        those = [watched for watched in streams if not _is_told(watched, problems)]
        for committed_only in (True, False):
            alike = [watched for watched in those if watched.target.source.committed_only is committed_only]
            _measure(fleet, alike, origins, committed_only=committed_only)
    except ExactlyOnceError as problem:
        for watched in streams:
            watched.learn(partial(after_source_problem, problem=str(problem)))
        return problem
    return None if those else next(iter(problems.values()), None)


def _is_told(watched: Watched, problems: Mapping[str, ExactlyOnceError]) -> bool:
    """Tell a stream what is wrong with an origin that it reads, if anything is."""
    selection = watched.target.source.selection()
    for name, problem in sorted(problems.items()):
        if selection.reads_origin(name):
            watched.learn(partial(after_source_problem, problem=str(problem)))
            return True
    return False


def _counted_until(snapshot: Snapshot) -> BatchNumber | None:
    return None if snapshot.landed is None else snapshot.landed.counted_until


def _measure(fleet: SourceFleet, streams: Sequence[Watched], origins: Origins, *, committed_only: bool) -> None:
    wanted: list[tuple[Watched, Mapping[Partition, int] | None, frozenset[Partition]]] = []
    for watched in streams:
        landed = None if watched.snapshot.landed is None else watched.snapshot.landed.positions
        reads, missing = watched.target.source.selected(origins)
        named = watched.target.source.selection()
        not_read_whole = {key for key, at in (landed or {}).items() if at != PARTITION_END}
        gone = [str(key) for key in sorted(not_read_whole - reads) if named.reads(key)]
        if missing or gone:
            problem = OriginMissing(f"The source has no {', '.join([*missing, *gone])} for {watched.target.stream_id}.")
            watched.learn(partial(after_source_problem, problem=str(problem)))
        else:
            wanted.append((watched, landed, reads))
    asked = frozenset(key for _, _, reads in wanted for key in reads)
    answer = fleet.bounds(asked, committed_only=committed_only)
    now = time.time()
    for watched, landed, reads in wanted:
        silent = sorted(reads & answer.problems.keys())
        if silent:
            watched.learn(partial(after_source_problem, problem=str(answer.problems[silent[0]])))
        else:
            bounds = {key: answer.bounds[key] for key in reads}
            watched.learn(partial(after_source, landed=landed, bounds=bounds, at=now))
    _date(fleet, [watched for watched, _, _ in wanted], committed_only=committed_only)


def _date(fleet: SourceFleet, streams: Sequence[Watched], *, committed_only: bool) -> None:
    """Fetch the records whose age is not known, one fetch for all; streams that stand at the same position share one.

    Where several positions of a partition are wanted, they are fetched in turn.
    """
    wanted: dict[Partition, dict[int, list[Watched]]] = defaultdict(lambda: defaultdict(list))
    for watched in streams:
        if watched.snapshot.source_up:
            for key, position in positions_to_date(watched.snapshot.partitions).items():
                wanted[key][position].append(watched)
    rounds = max((len(positions) for positions in wanted.values()), default=0)
    for number in range(rounds):
        chosen = {key: sorted(positions)[number] for key, positions in wanted.items() if number < len(positions)}
        found = fleet.timestamps(chosen, committed_only=committed_only)
        if not found:
            raise SourceUnreachable(
                "The source sends no records to the monitor; their age is not known until that is retried."
            )
        _learn_dates(found, {key: wanted[key][chosen[key]] for key in found})


def _learn_dates(
    found: Mapping[Partition, float | ExactlyOnceError | None], owners: Mapping[Partition, Sequence[Watched]]
) -> None:
    """Tell each stream the ages of its records, and what is wrong with one of its partitions."""
    streams = {id(watched): watched for those in owners.values() for watched in those}
    dates: dict[int, dict[Partition, float | None]] = defaultdict(dict)
    problems: dict[int, str] = {}
    for key, timestamp in sorted(found.items(), key=lambda one: one[0]):
        for watched in owners[key]:
            if isinstance(timestamp, ExactlyOnceError):
                problems.setdefault(id(watched), str(timestamp))
            else:
                dates[id(watched)][key] = timestamp
    for number, watched in streams.items():
        watched.learn(partial(after_dating, timestamps=dates[number]))
        if number in problems:
            watched.learn(partial(after_source_problem, problem=problems[number]))
