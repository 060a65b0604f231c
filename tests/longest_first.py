"""In which order tests run: those that take minutes first, dealt out among the workers, so that none is left with them.


Each worker of pytest-xdist begins with a contiguous part of the list (`--dist=worksteal`), and takes from the others later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Test = TypeVar("Test")


def longest_first(tests: Sequence[tuple[Test, float]], workers: int) -> list[Test]:
    """Return the tests in the order in which they are to run; each comes with its seconds, or 0 where it takes few.

    The short ones keep their order, since neighbours share what their module has started.
    """
    long = [test for test, seconds in sorted(tests, key=lambda known: -known[1]) if seconds]
    short = [test for test, seconds in tests if not seconds]
    size = -(-len(short) // workers)
    # So many per worker that the parts which pytest-xdist makes are these parts: it cuts the list into equal ones.
    return [
        test
        for worker in range(workers)
        for test in (*long[worker::workers], *short[worker * size : (worker + 1) * size])
    ]
