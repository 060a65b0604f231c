"""What the commands show of a stream of a cluster is read from a status as the operator stores it, field by field."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from exactlyonce.api.status import ConsecutiveFailures, Progress
from exactlyonce.cli.recorded import recorded_data, recorded_text
from exactlyonce.cli.stream_view import detail, table
from exactlyonce.control.driver_logs import PodGone, chosen_pod
from exactlyonce.control.wishes import Wish, Wished, attempt_of, outcome
from tests.unit.decided_streams import A, in_doubt, partly_loaded, resource_of
from tests.unit.passes import Machine

WORLDS = [in_doubt, partly_loaded]


def shown(machine: Machine) -> tuple[dict[str, Any], str, str]:
    """Return a resource with everything in its status that a command shows, and what `status` and `explain` print of it."""
    now, known = machine.now, machine.statuses.status
    assert known.driver is not None
    pod = {"pod_name": "orders-driver-2", "image": "spark:7", "started_at": now - timedelta(hours=2)}
    machine.statuses.status = known.model_copy(
        update={
            "driver": known.driver.model_copy(update=pod),
            "progress": Progress(
                batch=41,
                landed_at=now - timedelta(minutes=3),
                lag_records=77,
                lag_seconds=5,
                oldest_record_at=now - timedelta(seconds=125),
                lag_problem="Kafka is silent.",
            ),
            "consecutive_failures": ConsecutiveFailures(
                endings=4, batch=42, batch_failures=6, retry_at=now + timedelta(hours=1)
            ),
        }
    )
    resource = resource_of(machine)
    console = Console(file=io.StringIO(), width=20000, color_system=None)
    console.print(detail(resource, [], now))
    console.print(table([resource], now, with_namespace=True, width=20000))
    assert isinstance(console.file, io.StringIO)
    return resource, console.file.getvalue(), recorded_text(resource, now)


@pytest.mark.parametrize("world", WORLDS)
def test_each_field_that_a_person_is_shown_is_found(world: Callable[[], Machine]) -> None:
    machine = world()
    _, status, explained = shown(machine)
    verdict = machine.statuses.status.verdict
    assert verdict is not None
    assert len(verdict.evidence) >= 2
    landed = "batch 41, 3m ago"
    failures = (
        "4 attempts in a row ended without landing a batch",
        "batch 42 has failed 6 times",
        "the next attempt is made at",
    )
    driver = (
        f"attempt {machine.statuses.status.attempt}, pod orders-driver-2, started 2h",
        "image spark:7",
        "It ended: Refused.",
    )
    evidence = [f"- {item['words']}" for item in verdict.evidence]
    for words in (verdict.kind, verdict.message, *evidence, landed, *failures, *driver, f"{A} (transaction 71"):
        assert words in status, words
        assert words in explained, words
    for words in (
        "77 records",
        "2m5s ago",
        "Not measured now: Kafka is silent.",
        "generation 1 at /checkpoints/orders/",
    ):
        assert words in status, words
    assert "Halted" in status


@pytest.mark.parametrize("world", WORLDS)
def test_a_program_gets_the_evidence_with_its_data(world: Callable[[], Machine]) -> None:
    machine = world()
    resource, _, _ = shown(machine)
    verdict = machine.statuses.status.verdict
    assert verdict is not None
    found = recorded_data(resource)
    assert found["evidence"] == [dict(item) for item in verdict.evidence]
    assert (found["verdict"], found["batch"], found["attempt"]) == (verdict.kind, verdict.batch, verdict.attempt)
    assert (found["phase"], found["halts"]) == ("Halted", True)


def test_who_waits_for_a_stream_that_halts_is_told_its_message() -> None:
    resource = resource_of(in_doubt())
    assert attempt_of(resource) == 2
    ended = outcome(Wished(Wish.RESUME, resource, 1), resource)
    assert ended is not None
    assert not ended.fulfilled
    assert ended.words == resource["status"]["message"]


def test_who_asks_for_the_log_of_a_pod_that_is_gone_is_told_the_drivers_last_message() -> None:
    resource = resource_of(partly_loaded())
    with pytest.raises(
        PodGone, match=r"The pod of attempt 1 of shop/orders is gone.*Its last message: The sink has finished"
    ):
        chosen_pod(resource, [])
