"""Which generations nothing needs any more, and their removal: docs/adr/0043.

Reconciliation reads the published generation and later ones. Earlier ones are evidence for people, and what a database
that is restored from a backup may name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from exactlyonce.api.checkpoint_retention import GenerationRetention
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.generation import Generation, list_generations
from exactlyonce.checkpoint.log_numbers import numbers_of
from exactlyonce.checkpoint.store import ErasableStore, FileMissing, LogStore


def superseded(generations: Collection[Generation], current: Generation) -> tuple[Generation, ...]:
    """Return the generations with a lower number than the current one's, newest first. Performs no I/O.

    One with the same number was made by another attempt, which may still be writing it, and none of these is ever published
    again: a new generation has a higher number than any that is there.
    """
    return tuple(sorted((it for it in generations if it.number < current.number), reverse=True))


def is_too_old(last_planned: datetime | None, age: timedelta, now: datetime) -> bool:
    """Return whether the last batch was planned longer ago than `age`; not where nobody knows when. Performs no I/O."""
    return last_planned is not None and now - last_planned > age


def collect_generations(
    store: ErasableStore,
    current: Generation,
    retention: GenerationRetention,
    now: datetime,
    may_remove: Callable[[], bool],
) -> tuple[Generation, ...]:
    """Remove superseded generations that are not kept, the oldest first, and return those that are gone.

    `may_remove` is asked before each and now and then within one; once it says no, what is left is left. A crash leaves a
    generation with some of its files, which the next call removes.

    Raises:
        StoreUnreachable: some may be removed; do it again later.
    """
    removed = []
    for generation in reversed(_not_kept(store, superseded(list_generations(store), current), retention, now)):
        if not may_remove() or not store.remove(generation.folder, lambda: not may_remove()):
            break
        removed.append(generation)
    return tuple(removed)


def last_planned(store: LogStore, generation: Generation) -> datetime | None:
    """Return when Spark planned the last batch of a generation; None for a seed, and where its logs do not tell."""
    numbers = numbers_of(store.list(f"{generation.folder}/offsets"))
    if not numbers:
        return None
    try:
        planned = files.parse_offsets(store.read(f"{generation.folder}/offsets/{numbers[-1]}"))
        milliseconds = planned.planned_milliseconds
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
    except (
        FileMissing,
        ValueError,
        OverflowError,
        OSError,
    ):  # whatever a file says, it is kept until it is one of too many
        return None


def _not_kept(
    store: LogStore, newest_first: tuple[Generation, ...], retention: GenerationRetention, now: datetime
) -> tuple[Generation, ...]:
    few, many = newest_first[: retention.count], newest_first[retention.count :]
    # The newest is kept however old: a ledger that loses its latest commit names it.
    return (*(it for it in few[1:] if _goes_by_age(store, it, retention.age, now)), *many)


def _goes_by_age(store: LogStore, generation: Generation, age: timedelta, now: datetime) -> bool:
    """Whether it is too old, or has no offset log: one whose removal was cut short, or a seed that was."""
    if not numbers_of(store.list(f"{generation.folder}/offsets")):
        return True
    return is_too_old(last_planned(store, generation), age, now)
