"""Suspend, resume and restart: what is changed, what is refused, and when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from exactlyonce.control.cluster_reader import ClusterReader, ClusterSilent
from exactlyonce.control.wishes import Outcome, Wish, Wished, changed_spec, outcome
from exactlyonce.schema.model import LARGEST
from tests.api_server_in_memory import ApiServerInMemory
from tests.resource_documents import changed, document


def stream(suspend: bool = False, **status: Any) -> dict[str, Any]:
    """A stream of generation 5 that runs attempt 17, as the API server gives it."""
    seen = {"phase": "Running", "message": "Attempt 17 runs.", "attempt": 17, "observedGeneration": 5, **status}
    made = document({"metadata.uid": "u-1", "metadata.generation": 5, "spec.restartNonce": 3, "status": seen})
    return changed(made, {"spec.suspend": suspend})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerInMemory]:
    monkeypatch.setattr("exactlyonce.cli.waiting._LOOK_SECONDS", 0.0)
    with ApiServerInMemory(tmp_path, {"orders": stream()}) as made:
        yield made


def run(server: ApiServerInMemory, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(server.kubeconfig)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("command", "suspended", "field", "value", "said"),
    [
        ("suspend", False, "suspend", True, "shop/orders is being suspended: its driver ends after the current batch.\n"),
        ("resume", True, "suspend", False, "shop/orders is being resumed: the next driver is started.\n"),
        ("restart", False, "restartNonce", 4, "shop/orders is being restarted: its driver ends after the current batch, and "
         "another one follows.\n"),
    ],
)  # fmt: skip
def test_a_command_changes_one_field_of_the_spec(
    server: ApiServerInMemory, command: str, suspended: bool, field: str, value: object, said: str
) -> None:
    server.streams["orders"] = before = stream(suspended)
    result = run(server, command, "orders")
    assert (result.exit_code, result.stdout, result.stderr) == (0, said, "")
    assert server.streams["orders"]["spec"] == {**before["spec"], field: value}


def test_a_change_that_somebody_else_makes_at_the_same_moment_is_kept(server: ApiServerInMemory) -> None:
    times = iter([True, False])
    server.before_patch = lambda _: server.change_spec("orders", restartNonce=40) if next(times) else None
    assert run(server, "restart", "orders").exit_code == 0
    assert server.streams["orders"]["spec"]["restartNonce"] == 41, (
        "counted on from theirs, not from what was read first"
    )


def test_what_somebody_else_did_at_the_same_moment_is_not_done_again(server: ApiServerInMemory) -> None:
    server.before_patch = lambda _: server.change_spec("orders", suspend=True)
    result = run(server, "suspend", "orders")
    assert result.exit_code == 1
    assert result.stderr == "shop/orders is suspended already (it is Running); nothing was changed.\n"
    assert server.streams["orders"]["metadata"]["generation"] == 6


def test_a_resource_that_never_stands_still_is_left_alone_after_some_tries(server: ApiServerInMemory) -> None:
    def change(found: dict[str, Any]) -> None:
        server.change_spec("orders", history=found["metadata"]["generation"])

    server.before_patch = change
    result = run(server, "suspend", "orders")
    assert result.exit_code == 1
    assert "is being changed by somebody else all the time; nothing was changed: try again." in result.stderr
    assert server.streams["orders"]["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("command", "before", "said"),
    [
        ("suspend", stream(True, phase="Draining"), "shop/orders is suspended already (it is Draining); nothing was changed."),
        ("resume", stream(), "shop/orders is not suspended (it is Running); nothing was changed."),
        ("restart", stream(True), "shop/orders is suspended, so that no driver is to run; nothing was changed: resume it "
         "instead."),
        ("restart", changed(stream(), {"metadata.deletionTimestamp": "2026-03-01T00:00:00Z"}),
         "shop/orders is being deleted; nothing was changed."),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence_and_changes_nothing(
    server: ApiServerInMemory, command: str, before: dict[str, Any], said: str
) -> None:
    server.streams["orders"] = before
    result = run(server, command, "orders")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{said}\n")
    assert server.streams["orders"] == before


def test_a_stream_that_is_not_there_and_one_that_may_not_be_changed_are_told_apart(server: ApiServerInMemory) -> None:
    missing = run(server, "suspend", "refunds")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("There is no such stream: cannot read stream shop/refunds.")
    server.forbidden = {"patch exactlyoncestreams"}
    refused = run(server, "suspend", "orders")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "You may not suspend stream shop/orders; ask for the right to patch exactlyoncestreams in namespace shop.\n",
    )
    assert server.streams["orders"]["spec"]["suspend"] is False


def test_the_largest_nonce_is_followed_by_the_smallest() -> None:
    assert changed_spec(changed(stream(), {"spec.restartNonce": LARGEST}), Wish.RESTART) == {"restartNonce": 0}


WAITS = None


@pytest.mark.parametrize(
    ("wish", "status", "ended"),
    [
        (Wish.SUSPEND, {"phase": "Suspended", "observedGeneration": 4}, WAITS),
        (Wish.SUSPEND, {"phase": "Running"}, WAITS),
        (Wish.SUSPEND, {"phase": "Draining"}, WAITS),
        (Wish.SUSPEND, {"phase": "Suspended"}, True),
        (Wish.SUSPEND, {"phase": "Suspended", "specProblem": "it is wrong"}, True),
        (Wish.SUSPEND, {"phase": "Halted"}, False),
        (Wish.RESUME, {"phase": "Suspended"}, WAITS),
        (Wish.RESUME, {"phase": "Launching", "attempt": 18}, WAITS),
        (Wish.RESUME, {"phase": "Running", "attempt": 18}, True),
        (Wish.RESUME, {"phase": "Running"}, True),
        (Wish.RESUME, {"phase": "Completed"}, True),
        (Wish.RESUME, {"phase": "Halted"}, False),
        (Wish.RESUME, {"phase": "Suspended", "specProblem": "it is wrong"}, False),
        (Wish.RESTART, {"phase": "Running"}, WAITS),
        (Wish.RESTART, {"phase": "Running", "attempt": 18, "observedGeneration": 4}, WAITS),
        (Wish.RESTART, {"phase": "BackingOff", "attempt": 18}, WAITS),
        (Wish.RESTART, {"phase": "Running", "attempt": 18}, True),
        (Wish.RESTART, {"phase": "Halted", "attempt": 18}, False),
    ],
)
def test_a_wish_is_fulfilled_when_the_status_of_its_generation_says_so(
    wish: Wish, status: dict[str, Any], ended: bool | None
) -> None:
    found = outcome(Wished(wish, stream(), 17), stream(**status))
    assert (found and found.fulfilled) == ended


def test_what_keeps_a_wish_from_being_fulfilled_is_told() -> None:
    halted = outcome(Wished(Wish.RESTART, stream(), 17), stream(phase="Halted", message="The ledger went back."))
    assert halted == Outcome(False, "The ledger went back.")
    wrong = outcome(Wished(Wish.RESTART, stream(), 17), stream(specProblem="spec.sink: give one."))
    assert wrong == Outcome(False, "Its spec is invalid, so that no driver is started with it: spec.sink: give one.")


def test_waiting_shows_each_step_once_and_ends_when_the_driver_has(server: ApiServerInMemory) -> None:
    server.steps = [
        {},
        {"phase": "Draining", "message": "Attempt 17 ends after the current batch.", "observedGeneration": 6},
        {},
        {"phase": "Suspended", "message": "The stream is suspended, as requested."},
    ]
    result = run(server, "suspend", "orders", "--wait")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "shop/orders is being suspended: its driver ends after the current batch.",
        "  Running: Attempt 17 runs.",
        "  Draining: Attempt 17 ends after the current batch.",
        "shop/orders is Suspended. The stream is suspended, as requested.",
    ]


def test_waiting_for_a_stream_that_halts_has_status_2_and_says_why(server: ApiServerInMemory) -> None:
    server.steps = [{"phase": "Halted", "message": "The ledger went back.", "observedGeneration": 6, "attempt": 18}]
    result = run(server, "restart", "orders", "--wait")
    assert (result.exit_code, result.stderr) == (2, "shop/orders is Halted. The ledger went back.\n")


def test_waiting_has_an_end_and_says_that_it_goes_on_without(server: ApiServerInMemory) -> None:
    result = run(server, "restart", "orders", "--wait", "--timeout", "0s")
    assert result.exit_code == 1
    assert result.stderr == (
        "shop/orders did not get there within 0 s and is Running; the operator keeps working on it: `exactlyonce status orders "
        "-n shop --watch` shows how far it is.\n"
    )


def test_a_stream_that_is_suspended_already_is_still_waited_for(server: ApiServerInMemory) -> None:
    server.streams["orders"] = stream(True, phase="Draining")
    server.patched, server.steps = True, [{}, {}, {"phase": "Suspended", "message": "At rest."}]
    result = run(server, "suspend", "orders", "--wait")
    assert (result.exit_code, result.stderr) == (
        0,
        "shop/orders is suspended already (it is Draining); nothing was changed.\n",
    )
    assert result.stdout.splitlines()[-1] == "shop/orders is Suspended. At rest."


def test_an_api_server_that_is_silent_for_a_while_is_asked_again(
    server: ApiServerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(
        [
            stream(),
            ClusterSilent("Cannot read it."),
            stream(phase="Suspended", message="At rest.", observedGeneration=6),
        ]
    )

    def observed(*_: object) -> dict[str, Any]:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, dict)
        return found

    monkeypatch.setattr(ClusterReader, "stream", observed)
    result = run(server, "suspend", "orders", "--wait")
    assert result.exit_code == 0
    assert "  Cannot read it. It will be retried." in result.stdout.splitlines()


def test_a_time_to_wait_that_is_none_is_told(server: ApiServerInMemory) -> None:
    result = run(server, "suspend", "orders", "--wait", "--timeout", "soon")
    assert result.exit_code == 2
    assert "Invalid value for '--timeout'" in result.stderr
    assert server.streams["orders"]["spec"]["suspend"] is False
