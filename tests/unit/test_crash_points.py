"""Each crash point that a test may name is one that the code reaches, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path

from exactlyonce.connectors.files import compaction
from exactlyonce.connectors.object_log import points
from exactlyonce_spark import crash_points

ROOT = Path(__file__).resolve().parents[2]
_REACHED = re.compile(r"reached\(\s*\"([a-z]+\.[a-z-]+)\"")
_CONNECTORS = ROOT / "operator" / "exactlyonce" / "connectors"


def reached_in(*places: Path) -> set[str]:
    """The points that modules name where they are reached."""
    modules = [module for place in places for module in (place.rglob("*.py") if place.is_dir() else (place,))]
    return {point for module in modules for point in _REACHED.findall(module.read_text())}


def test_the_points_of_drivers_are_those_that_they_reach() -> None:
    found = reached_in(ROOT / "spark_apps", _CONNECTORS / "files" / "spark_metadata.py")
    assert found == set(crash_points.ALL_POINTS)


def test_the_points_of_compactions_and_of_the_object_log_are_those_that_they_reach() -> None:
    assert reached_in(_CONNECTORS / "files" / "compaction.py") == set(compaction.POINTS)
    assert reached_in(_CONNECTORS / "object_log") == set(points.POINTS)
