"""When the streams of a list are looked at: all when an operator begins to lead, then spread over time, new ones at once."""

from __future__ import annotations

import pytest

from exactlyonce.control.__main__ import kopf_settings
from exactlyonce.control.settings import read_settings
from exactlyonce.control.sweeps import Sweeps
from exactlyonce.control.wakeups import Key

FLEET = [Key("shop", f"orders-{number}") for number in range(3_000)]
PERIOD_SECONDS = 300.0


def test_an_operator_that_begins_to_lead_looks_at_every_stream_at_once() -> None:
    assert Sweeps(PERIOD_SECONDS).due(FLEET, now=7.0) == dict.fromkeys(FLEET, 0.0)


def test_a_later_sweep_looks_at_each_stream_once_and_never_at_many_in_the_same_second() -> None:
    sweeps = Sweeps(PERIOD_SECONDS)
    sweeps.due(FLEET, now=0.0)
    assert [sweeps.due(FLEET, now) for now in (60.0, 120.0, 180.0, 240.0)] == [{}] * 4
    due = sweeps.due(FLEET, now=300.0)
    assert due.keys() == set(FLEET)
    of_second = [sum(second <= after < second + 1 for after in due.values()) for second in range(int(PERIOD_SECONDS))]
    assert sum(of_second) == len(FLEET)
    assert max(of_second) <= len(FLEET) / PERIOD_SECONDS + 1


def test_a_sweep_over_a_large_fleet_takes_longer_rather_than_all_of_a_core() -> None:
    sweeps, fleet = Sweeps(PERIOD_SECONDS), [Key("shop", f"orders-{number}") for number in range(10_000)]
    sweeps.due(fleet, now=0.0)
    assert sweeps.due(fleet, now=999.0) == {}
    due = sorted(sweeps.due(fleet, now=1_000.0).values())
    assert len(due) == 10_000
    assert due[-1] == pytest.approx(999.9)


def test_a_stream_that_was_created_while_the_watch_was_down_is_looked_at_with_the_next_list() -> None:
    sweeps, created = Sweeps(PERIOD_SECONDS), Key("shop", "created")
    sweeps.due(FLEET, now=0.0)
    assert sweeps.due([*FLEET, created], now=60.0) == {created: 0.0}
    assert sweeps.due([*FLEET, created], now=120.0) == {}
    assert sweeps.due([*FLEET, created, Key("shop", "later")], now=300.0)[Key("shop", "later")] == 0.0


def test_a_stream_that_went_while_the_watch_was_down_is_looked_at_once_more() -> None:
    sweeps = Sweeps(PERIOD_SECONDS)
    sweeps.due(FLEET, now=0.0)
    assert sweeps.due(FLEET[1:], now=60.0) == {FLEET[0]: 0.0}
    assert sweeps.due(FLEET[1:], now=120.0) == {}


def test_an_operator_that_leads_again_looks_at_every_stream_again() -> None:
    sweeps = Sweeps(PERIOD_SECONDS)
    sweeps.due(FLEET, now=0.0)
    sweeps.end()
    assert sweeps.due(FLEET, now=60.0) == dict.fromkeys(FLEET, 0.0)


def test_lists_come_in_pages() -> None:
    assert kopf_settings(read_settings([])).watching.chunk_size == 50
