"""Which combinations of a claim run: one by default, in `make test` or `make test-connectors`, all in `make test-full`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

EVERY_MODE = os.environ.get("EVERY_MODE") == "1"
Case = TypeVar("Case")

only_in_full = pytest.mark.skipif(not EVERY_MODE, reason="make test-full runs it (EVERY_MODE=1)")
"""For a claim that another test makes in passing, or one about the test cluster itself."""


def one_or_all(cases: Sequence[Case]) -> list[Case]:
    """Return the first case, which tells the most, or with EVERY_MODE=1 each of them."""
    return list(cases if EVERY_MODE else cases[:1])


def in_full(full: Case, otherwise: Case) -> Case:
    """Return `full` with EVERY_MODE=1, for example more kills, and `otherwise` by default.

    A kill costs a driver of its own. Beside each use stands which other test kills by default at the points left out.
    """
    return full if EVERY_MODE else otherwise
