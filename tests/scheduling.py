"""In which order tests run, and which of them stay on one worker.

Tests of a module that share a fixture run one after the other on one worker (where pytest-xdist is told `--dist=loadscope`):
the fixture is set up once in a run, and never a second time on a worker that had left the module.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from xdist.scheduler import LoadScopeScheduling

Test = TypeVar("Test")


def longest_first(tests: Sequence[tuple[Test, str | None, float]]) -> list[Test]:
    """Return the tests in the order in which workers are to take them; each comes with its group and its seconds, or 0.

    What takes minutes runs first, so that no worker is left with it; a group is as long as its tests together. The others keep
    their order.
    """
    members: defaultdict[Hashable, list[Test]] = defaultdict(list)
    seconds_of: defaultdict[Hashable, float] = defaultdict(float)
    for index, (test, group, seconds) in enumerate(tests):
        unit = index if group is None else group
        members[unit].append(test)
        seconds_of[unit] += seconds
    return [test for unit in sorted(members, key=lambda unit: -seconds_of[unit]) for test in members[unit]]


def group_of(nodeid: str, root: Path) -> str | None:
    """Return the module whose tests stay together, this one among them; None where they share no fixture."""
    module = nodeid.partition("::")[0]
    return module if _shares_a_fixture(root / module) else None


@functools.cache
def _shares_a_fixture(module: Path) -> bool:
    """Whether the tests of a module share a fixture that is set up once for all of them."""
    return 'scope="module"' in module.read_text()


class WholeModules(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives tests to workers one by one, but all tests of a module that share a fixture to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.rootpath) or nodeid
