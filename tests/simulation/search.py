"""Many seeds at once: run them in processes of their own, and look for the first one that finds something."""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulation.mutations import HARMLESS, MUTATIONS
from tests.simulation.oracle import Violation, run_seed

CHUNK = 100


@dataclass(frozen=True, slots=True)
class Found:
    """A seed that went wrong, and how."""

    seed: int
    words: str


def workers() -> ProcessPoolExecutor:
    """Return processes that run seeds, one a core."""
    return ProcessPoolExecutor(initializer=_collect_seldom)


def violations_in(first: int, until: int) -> list[Found]:
    """Run the seeds `[first, until)` and return those that went wrong."""
    found = []
    for seed in range(first, until):
        try:
            run_seed(seed)
        except Violation as problem:
            found.append(Found(seed, str(problem)))
    return found


def first_that_finds(name: str, seeds: int) -> Found | None:
    """Return the first of so many seeds that goes wrong with the mutation, or with the part of one, of this name."""
    with {**MUTATIONS, **HARMLESS}[name]():
        for seed in range(seeds):
            try:
                run_seed(seed)
            except Violation as problem:
                return Found(seed, str(problem))
    return None


def _collect_seldom() -> None:
    """A run leaves cycles of greenlets behind; collecting them less often costs a few megabytes and saves a tenth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
