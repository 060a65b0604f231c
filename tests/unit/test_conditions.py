"""The conditions of every phase, read back by kstatus' own rules, by `kubectl wait` and by Argo CD's health script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime  # what Argo CD runs (gopher-lua) is Lua 5.1

from exactlyonce.api.conditions import rendered
from exactlyonce.api.status import ConsecutiveFailures, DriverStatus, Phase, Progress, StreamStatus, VerdictStatus
from scripts.generate_crd import UNSEEN

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
HEALTH = Path(__file__).parents[2] / "docs" / "argocd" / "health.lua"

# phase: the reason, then what kstatus and Argo CD make of it. Written by hand: this is the specification.
TABLE = {
    Phase.PENDING: ("Pending", "InProgress", "Progressing"),
    Phase.RECONCILING: ("Reconciling", "InProgress", "Progressing"),
    Phase.LAUNCHING: ("Launching", "InProgress", "Progressing"),
    Phase.RUNNING: ("Running", "Current", "Healthy"),
    Phase.DRAINING: ("Draining", "InProgress", "Progressing"),
    Phase.BACKING_OFF: ("BackingOff", "InProgress", "Progressing"),
    Phase.HALTED: ("Refused", "Failed", "Degraded"),
    Phase.SUSPENDED: ("Suspended", "Current", "Suspended"),
    Phase.COMPLETED: ("Completed", "Current", "Healthy"),
}
HOLDS = {"Current": "Ready", "InProgress": "Reconciling", "Failed": "Stalled"}


def resource(status: StreamStatus, *, generation: int = 3, now: datetime = NOW) -> dict[str, Any]:
    """Return a resource with a status as the operator stores it."""
    document = {"metadata": {"name": "orders", "generation": generation}}
    return {**document, "status": rendered(status, document, now)}


def conditions(document: Mapping[str, Any]) -> dict[str, Any]:
    return {condition["type"]: condition for condition in document["status"]["conditions"]}


def kstatus(document: Mapping[str, Any]) -> str:
    """Return what kstatus calls a resource of a kind it does not know.

    Ported from github.com/fluxcd/cli-utils v1.2.1, which Helm and Flux use, pkg/kstatus/status: checkGenericProperties
    (generic.go), then checkReadyCondition (status.go). The library itself has said the same of all that is checked here.
    """
    if "deletionTimestamp" in document["metadata"]:
        return "Terminating"
    status = document.get("status", {})
    observed = status.get("observedGeneration")
    if observed is not None and observed != document["metadata"]["generation"]:
        return "InProgress"
    found = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
    if found.get("Reconciling") == "True":
        return "InProgress"
    if found.get("Stalled") == "True":
        return "Failed"
    return "InProgress" if found.get("Ready") in ("False", "Unknown") else "Current"


@pytest.fixture(scope="module")
def argo() -> Callable[[Mapping[str, Any]], tuple[str, str]]:
    """Run the health script as Argo CD does: the resource is the global `obj`, the chunk returns the health."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    run = lua.compile(HEALTH.read_text())

    def health(document: Mapping[str, Any]) -> tuple[str, str]:
        lua.globals()["obj"] = lua.table_from(dict(document), recursive=True)
        made: Any = run()
        return str(made["status"]), str(made["message"])

    return health


def test_the_table_has_every_phase() -> None:
    assert set(TABLE) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_read_by_kstatus_and_argo_cd_as_the_table_says(
    phase: Phase, argo: Callable[[Mapping[str, Any]], tuple[str, str]]
) -> None:
    reason, current, health = TABLE[phase]
    document = resource(StreamStatus(phase=phase, message="What is so."))
    assert kstatus(document) == current
    assert argo(document) == (health, "What is so.")
    found = conditions(document)
    assert {kind for kind, condition in found.items() if condition["status"] == "True"} == {HOLDS[current]}
    assert {condition["reason"] for condition in found.values()} == {reason}
    assert set(found) == {"Ready", "Reconciling", "Stalled"}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_sentence_of_its_own_where_the_status_has_none(phase: Phase) -> None:
    messages = {condition["message"] for condition in conditions(resource(StreamStatus(phase=phase))).values()}
    assert all(message.endswith(".") for message in messages)


@pytest.mark.parametrize("phase", Phase)
def test_a_spec_that_is_invalid_stalls_a_stream_whatever_its_driver_does(
    phase: Phase, argo: Callable[[Mapping[str, Any]], tuple[str, str]]
) -> None:
    document = resource(StreamStatus(phase=phase, message="Attempt 4 runs.", spec_problem="spec.sink: give one."))
    assert kstatus(document) == "Failed"
    assert argo(document) == ("Degraded", "spec.sink: give one.")
    assert conditions(document)["Stalled"]["reason"] == "SpecInvalid"
    assert document["status"]["phase"] == phase


@pytest.mark.parametrize("phase", Phase)
def test_a_lag_that_cannot_be_measured_is_a_condition_of_its_own_and_changes_no_other(
    phase: Phase, argo: Callable[[Mapping[str, Any]], tuple[str, str]]
) -> None:
    plain = StreamStatus(phase=phase, message="What is so.")
    known = resource(plain.model_copy(update={"progress": Progress(lag_records=0, lag_seconds=0)}))
    silent = resource(plain.model_copy(update={"progress": Progress(lag_records=7, lag_problem="Kafka is silent.")}))
    assert kstatus(known) == kstatus(silent) == TABLE[phase][1]
    assert argo(known) == argo(silent) == (TABLE[phase][2], "What is so.")
    assert conditions(known)["Measured"]["status"] == "True"
    measured = conditions(silent)["Measured"]
    assert (measured["status"], measured["reason"]) == ("False", "NotMeasured")
    assert measured["message"] == "Kafka is silent."


@pytest.mark.parametrize("phase", Phase)
def test_a_version_of_the_resource_that_was_not_looked_at_is_in_progress(
    phase: Phase, argo: Callable[[Mapping[str, Any]], tuple[str, str]]
) -> None:
    document = resource(StreamStatus(phase=phase))
    document["metadata"]["generation"] += 1
    assert kstatus(document) == "InProgress"
    assert argo(document)[0] == "Progressing"


def test_a_stream_that_no_operator_has_looked_at_is_in_progress(
    argo: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> None:
    document = {"metadata": {"name": "orders", "generation": 1}, "status": UNSEEN}
    assert kstatus(document) == "InProgress"
    assert argo(document)[0] == "Progressing"
    assert StreamStatus.model_validate(UNSEEN).phase is Phase.PENDING


def test_a_resource_without_a_status_is_in_progress_for_argo_cd(
    argo: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> None:
    assert argo({"metadata": {"name": "orders", "generation": 1}})[0] == "Progressing"
    assert argo({"metadata": {"name": "orders", "generation": 1}, "status": {"phase": "Pending"}})[0] == "Progressing"


def test_a_condition_keeps_the_moment_since_which_it_holds() -> None:
    first = resource(StreamStatus(phase=Phase.LAUNCHING))
    later = NOW + timedelta(minutes=1)
    status = StreamStatus.model_validate(first["status"])
    second = resource(status.model_copy(update={"message": "Still."}), generation=4, now=later)
    assert {at["lastTransitionTime"] for at in conditions(second).values()} == {"2026-03-01T12:00:00Z"}
    assert {at["observedGeneration"] for at in conditions(second).values()} == {4}

    status = StreamStatus.model_validate(second["status"])
    third = conditions(resource(status.model_copy(update={"phase": Phase.RUNNING}), now=later))
    assert third["Ready"]["lastTransitionTime"] == third["Reconciling"]["lastTransitionTime"] == "2026-03-01T12:01:00Z"
    assert third["Stalled"]["lastTransitionTime"] == "2026-03-01T12:00:00Z"


def test_a_halt_by_a_verdict_has_the_verdict_for_a_reason() -> None:
    words = "Topic orders holds nothing before offset 70."
    verdict = VerdictStatus(kind="SourceTruncated", message=words, attempt=4, at=NOW)
    halted = StreamStatus(phase=Phase.HALTED, message=words, attempt=4, verdict=verdict)
    assert conditions(resource(halted))["Stalled"]["reason"] == "SourceTruncated"

    otherwise = halted.model_copy(update={"message": "There is no table orders."})
    assert conditions(resource(otherwise))["Stalled"]["reason"] == "Refused"


def test_a_wait_after_an_ending_has_the_ending_for_a_reason_until_something_else_is_waited_for() -> None:
    driver = DriverStatus(attempt=4, ended="OutOfMemory", message="The driver ran out of memory.")
    waits = StreamStatus(phase=Phase.BACKING_OFF, message="The driver ran out of memory.", attempt=4, driver=driver)
    assert conditions(resource(waits))["Reconciling"]["reason"] == "OutOfMemory"

    unreachable = waits.model_copy(update={"message": "Kafka at kafka:9092 does not answer."})
    assert conditions(resource(unreachable))["Reconciling"]["reason"] == "BackingOff"
    next_attempt = waits.model_copy(update={"attempt": 5})
    assert conditions(resource(next_attempt))["Reconciling"]["reason"] == "BackingOff"


def test_a_halt_after_failures_of_one_batch_has_the_ending_for_a_reason() -> None:
    driver = DriverStatus(attempt=4, ended="BatchFailed", message="Malformed record.")
    halted = StreamStatus(
        phase=Phase.HALTED,
        message="Batch 7 has failed 5 times; the last error: Malformed record. Fix the cause.",
        attempt=4,
        driver=driver,
        consecutive_failures=ConsecutiveFailures(endings=5, batch=7, batch_failures=5),
    )
    assert conditions(resource(halted))["Stalled"]["reason"] == "BatchFailed"
    refused = halted.model_copy(update={"message": "The database refuses the login."})
    assert conditions(resource(refused))["Stalled"]["reason"] == "Refused"


def test_a_message_of_any_length_is_stored_within_kubernetes_own_bound() -> None:
    document = resource(StreamStatus(message="x" * 100_000))
    assert {len(condition["message"]) for condition in conditions(document).values()} == {32_768}


def test_a_status_that_another_release_wrote_is_read() -> None:
    status = StreamStatus.model_validate(
        {"phase": "Running", "attempt": 3, "mood": "good", "driver": {"attempt": 3, "shoe": 42}}
    )
    assert (status.phase, status.attempt) == (Phase.RUNNING, 3)
