"""The page of metrics: fresh where it is quick to make, and never waited for where it is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exactlyonce.control.metrics_page import MetricsPage


@dataclass(eq=False)
class Fleet(Collector):
    """Series that take as long as the test says, by a clock of its own."""

    seconds: float = 0.0
    now: float = 0.0
    made: int = 0
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        assert self.may_go_on.wait(30)
        self.made += 1
        self.now += self.seconds
        yield GaugeMetricFamily("made", "How often the page was made.", value=self.made)

    def page(self) -> MetricsPage:
        registry = CollectorRegistry()
        registry.register(self)
        return MetricsPage(registry, lambda: self.now)


def value(page: bytes) -> float:
    (line,) = [line for line in page.decode().splitlines() if line.startswith("made ")]
    return float(line.split()[1])


def test_each_scrape_of_a_small_fleet_gets_a_page_of_its_own() -> None:
    fleet = Fleet(seconds=0.01)
    fleet.may_go_on.set()

    async def scrapes() -> list[float]:
        page = fleet.page()
        return [value(await page.read()) for _ in range(3)]

    assert asyncio.run(scrapes()) == [1, 2, 3]


def test_a_scrape_of_a_large_fleet_does_not_wait_for_a_page_that_is_being_made() -> None:
    fleet = Fleet(seconds=0.3)
    fleet.may_go_on.set()

    async def scrapes() -> None:
        page = fleet.page()
        assert value(await page.read()) == 1
        fleet.may_go_on.clear()
        assert value(await page.read()) == 1, "the page of a moment ago"
        fleet.may_go_on.set()
        while fleet.made < 2:
            await asyncio.sleep(0.01)
        while value(await page.read()) == 1:
            await asyncio.sleep(0.01)
        await page.end()

    asyncio.run(scrapes())


def test_a_page_that_nobody_has_asked_for_in_minutes_is_recreated() -> None:
    fleet = Fleet(seconds=0.3)
    fleet.may_go_on.set()

    async def scrapes() -> None:
        page = fleet.page()
        assert value(await page.read()) == 1
        fleet.now += 600
        assert value(await page.read()) == 2
        await page.end()

    asyncio.run(scrapes())


def test_scrapes_at_the_same_moment_share_one_page() -> None:
    fleet = Fleet(seconds=0.1)

    async def scrapes() -> list[bytes]:
        page = fleet.page()
        asked = [asyncio.create_task(page.read()) for _ in range(5)]
        await asyncio.sleep(0)  # each has asked
        fleet.may_go_on.set()
        return await asyncio.gather(*asked)

    assert {value(page) for page in asyncio.run(scrapes())} == {1}
