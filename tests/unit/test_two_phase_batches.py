"""A batch into a sink of two phases is prepared, decided, committed and landed once, wherever its driver dies."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from exactlyonce.errors import ExactlyOnceError, Unreachable
from exactlyonce.ledger import two_phase
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import DecisionTooLarge
from exactlyonce_spark.batch_settings import PlanUnfit
from exactlyonce_spark.target import LoadState
from tests.simulation.two_phase_store import SinkSilent
from tests.two_phase_stream import (
    ALL,
    OF_A_BATCH,
    Killed,
    Watch,
    World,
    killed_at,
)


def test_rows_are_visible_once_the_ledger_has_decided_and_the_batch_lands_once_they_are(passed: Watch) -> None:
    world, seen = World(), []
    passed(lambda point: seen.append((point, world.visible.total(), str(world.status()))))
    world.land()
    steps = [step for step in seen if step[0].startswith(("batch.", "commit.", "task.prepared"))][2:]
    assert steps == [
        ("task.prepared", 0, "InProgress"),
        ("task.prepared", 0, "InProgress"),
        ("batch.rows-written", 0, "InProgress"),
        ("batch.source-checked", 0, "InProgress"),
        ("batch.decided", 0, "Decided"),
        ("commit.answered", 5, "Decided"),
        ("commit.answered", 8, "Decided"),
        ("batch.committed", 8, "Decided"),
        ("batch.landed", 8, "Landed"),
    ]
    assert world.visible == ALL


def test_a_small_batch_is_one_load_of_the_driver() -> None:
    world = World()
    world.land(small=100)
    assert world.visible == ALL
    assert len(world.store.loads) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", OF_A_BATCH)
def test_a_batch_whose_driver_dies_takes_effect_once(point: str, times: int, passed: Watch) -> None:
    world = World()
    killed_at(point, passed, times)
    comes_twice = point in ("task.prepared", "commit.answered")
    with pytest.raises(Killed) if times == 1 or comes_twice else nullcontext():
        world.land()
    world.next_driver()
    assert LoadState.PREPARED not in world.states(), "what nobody decided is aborted"
    world.land()
    assert world.visible == ALL
    assert world.status() is BatchStatus.LANDED


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_a_lost_answer_to_a_prepare_is_settled_under_the_same_label(fate: str) -> None:
    world = World(fates={"prepare": [fate]})
    world.land()
    for act in world.store.under_way:
        with pytest.raises(ExactlyOnceError):
            act()
    assert world.visible == ALL
    assert len(world.store.loads) == 2


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_a_lost_answer_to_a_commit_ends_the_driver_and_the_next_one_finishes_the_batch(fate: str) -> None:
    world = World(fates={"commit": [fate]})
    with pytest.raises(SinkSilent):
        world.land()
    assert issubclass(SinkSilent, Unreachable), "it is no failure of the batch"
    world.next_driver()
    for act in world.store.under_way:
        act()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)
    world.land()
    assert world.visible == ALL


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"stateful": True}, "keeps state"), ({"one_range_each": False}, "every task reads exactly one range")],
)
def test_a_query_whose_rows_could_not_be_made_again_is_refused(changes: dict[str, Any], words: str) -> None:
    world = World()
    with pytest.raises(PlanUnfit, match=words):
        world.land(**changes)
    assert not world.store.loads


def test_a_batch_with_more_loads_than_the_ledger_could_be_read_with_is_refused_before_it_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(two_phase, "MOST_VALUES", 20)
    world = World()
    with pytest.raises(
        DecisionTooLarge, match=r"Batch 1 of shop/orders cannot be decided: with 2 loads .* smaller batch"
    ):
        world.land()
    assert (world.visible.total(), world.status()) == (0, BatchStatus.IN_PROGRESS)


def test_a_batch_without_rows_lands_without_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(World, "rows", lambda self, ranges: [])
    world.land()
    assert (world.status(), world.store.loads) == (BatchStatus.LANDED, {})
