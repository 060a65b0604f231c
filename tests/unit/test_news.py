"""What wakes a stream: what a person may have changed, never what passes write themselves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from exactlyonce.control.lifecycle import Operator
from exactlyonce.control.wakeups import Key, WakeUps

KEY = Key("shop", "orders")
META = {"uid": "u-1", "generation": 1, "resourceVersion": "5", "annotations": {"team": "a"}, "finalizers": ["f"]}


def operator() -> Operator:
    """Return an operator of which only what hears events is used."""
    nothing: Any = None
    return Operator(WakeUps(time.monotonic), nothing, nothing, 1, list, nothing)


def news(heard: Operator, kind: str = "MODIFIED", **changes: Any) -> bool:
    """Whether an event of the resource wakes its stream."""
    return heard._is_news(KEY, kind, {**META, **changes})


def test_a_status_that_was_written_wakes_nobody() -> None:
    heard = operator()
    assert news(heard, "ADDED")
    assert not news(heard, resourceVersion="6")
    assert not news(heard, resourceVersion="7", managedFields=["status"])


def test_what_a_person_may_have_changed_wakes_the_stream() -> None:
    heard = operator()
    news(heard, "ADDED")
    assert news(heard, generation=2), "the spec"
    assert news(heard, generation=2, annotations={"exactlyonce.dev/adopt": "yes"})
    assert news(
        heard, generation=2, annotations={"exactlyonce.dev/adopt": "yes"}, deletionTimestamp="2026-01-01T00:00:00Z"
    )


def test_a_resource_made_again_under_its_name_is_news() -> None:
    heard = operator()
    news(heard, "ADDED")
    assert news(heard, "DELETED")
    assert news(heard, "ADDED", uid="u-2")


def test_a_stream_that_is_created_goes_before_the_many_that_were_there_when_the_watch_began() -> None:
    async def first() -> Key:
        heard, created = operator(), Key("shop", "created")
        for number in range(100):
            heard.hear(Key("shop", f"orders-{number}"), None, META)
        heard.hear(created, "ADDED", META)
        return (await heard.wakeups.next()).key

    assert asyncio.run(first()) == Key("shop", "created")
