"""What unit tests of several modules are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from exactlyonce_spark import crash_points
from tests.two_phase_stream import Watch

if TYPE_CHECKING:
    from tests.delta_rig import DeltaStream


@pytest.fixture
def passed() -> Iterator[Watch]:
    yield crash_points.watch
    crash_points.watch(lambda point: None)


@pytest.fixture(params=["Delta", "Iceberg"])
def kind(request: pytest.FixtureRequest) -> type[DeltaStream]:
    """Both kinds of table with a log; their libraries are imported only where somebody asks for a table."""
    from tests.delta_rig import DeltaStream
    from tests.iceberg_rig import IcebergStream

    return DeltaStream if request.param == "Delta" else IcebergStream
