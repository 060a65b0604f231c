"""What the ledger keeps, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.checkpoint import collecting
from exactlyonce.checkpoint.generation import Generation, parse_generation
from exactlyonce_spark import old_generations
from tests.simulation import database, server


@contextmanager
def retention_takes_what_a_decision_needs() -> Iterator[None]:
    """Of the ledger's batches those are deleted, too, that the next decision compares Spark's logs with."""

    def delete_all(self: Any, stream_id: str, excess: Any, fewest: int, most: int) -> int:
        rows = self.read_batches_after(stream_id, None)
        self.writes.update({("batch", stream_id, row.batch): server.GONE for row in rows})
        return len(rows)

    with mock.patch.object(database.MemoryTransaction, "delete_batches", delete_all):
        yield


@contextmanager
def the_current_generation_is_removed_too() -> Iterator[None]:
    """With the generations that newer ones have superseded, the current one is removed."""

    def all_of_them(generations: tuple[Generation, ...], current: Generation) -> tuple[Generation, ...]:
        return tuple(sorted((it for it in generations if it.number <= current.number), reverse=True))

    with mock.patch.object(collecting, "superseded", all_of_them):
        yield


@contextmanager
def generations_are_removed_before_a_batch_has_landed() -> Iterator[None]:
    """A driver removes the earlier generations at once, while its own is a seed and may not even be written."""

    def published(view: Any, permit: Any, store: Any) -> Generation | None:
        if view is None or (view.stream.epoch, view.stream.claim) != (permit.epoch, permit.claim):
            return None
        return parse_generation((view.stream.checkpoint_path or "").rsplit("/", 1)[-1])

    with mock.patch.object(old_generations, "_landed_in", published):
        yield
