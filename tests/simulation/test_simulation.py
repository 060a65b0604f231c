"""The simulation: the real protocol under every interleaving that a seed draws, counted by unique ids."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.mutations import HARMLESS, MUTATIONS
from tests.simulation.oracle import Violation, run_seed

SEEDS = int(os.environ.get("SEEDS", "10000"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
SEEDS_TO_FIND_A_MUTATION = 10_000
SEEDS_OF_A_HARMLESS_CHANGE = 1000
CHUNK = 250


def violations_in(first: int) -> list[str]:
    """Run one chunk of seeds in a worker process and return what went wrong."""
    found = []
    for seed in range(first, min(first + CHUNK, FIRST_SEED + SEEDS)):
        try:
            run_seed(seed)
        except Violation as problem:
            found.append(f"{problem}\nAgain: FIRST_SEED={seed} SEEDS=1 make test-simulation")
    return found


def test_no_seed_loses_or_doubles_a_record() -> None:
    with ProcessPoolExecutor() as workers:
        chunks = workers.map(violations_in, range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
        found = [problem for chunk in chunks for problem in chunk]
    assert not found, f"{len(found)} of {SEEDS} seeds went wrong; the first:\n{found[0]}"


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert run_seed(7).simulation.trace == run_seed(7).simulation.trace


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulation_finds_what_breaks_without(name: str) -> None:
    with MUTATIONS[name]():
        for seed in range(SEEDS_TO_FIND_A_MUTATION):
            try:
                run_seed(seed)
            except Violation:
                return
    pytest.fail(f"{SEEDS_TO_FIND_A_MUTATION} seeds did not notice: {MUTATIONS[name].__doc__}")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_mutation_takes_away_beside_its_rule_breaks_nothing_alone(name: str) -> None:
    with HARMLESS[name]():
        for seed in range(SEEDS_OF_A_HARMLESS_CHANGE):
            run_seed(seed)
