"""What unit tests of several modules are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactlyonce_spark import crash_points
from tests.two_phase_stream import Watch


@pytest.fixture
def passed() -> Iterator[Watch]:
    yield crash_points.watch
    crash_points.watch(lambda point: None)
