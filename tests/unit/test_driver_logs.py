"""`exactlyonce logs`: which driver's, and what is said where its pod is gone or its log not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from tests.api_server_in_memory import ApiServerInMemory, driver_pod
from tests.resource_documents import changed, document

STREAM = document(
    {
        "metadata.uid": "u-1",
        "metadata.generation": 5,
        "spec.history": 2,
        "status": {"phase": "Running", "attempt": 17, "driver": {"attempt": 17}},
    }
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerInMemory]:
    """A stream that runs attempt 17, with the pods of 9 and 16, and one of an earlier stream of the same name."""
    monkeypatch.setattr("exactlyonce.cli.logs._LOOK_SECONDS", 0.0)
    pods = [driver_pod(STREAM, 16, "Failed"), driver_pod(STREAM, 9), driver_pod(STREAM, 17, "Running")]
    pods.append(driver_pod(STREAM, 90, uid="u-0"))
    logs = {
        (pod["metadata"]["name"], container): f"{pod['metadata']['name']} {container}\nlast line\n".encode()
        for pod in pods
        for container in ("driver", "reconcile")
    }
    with ApiServerInMemory(tmp_path, {"orders": STREAM}, pods, logs) as made:
        yield made


def run(server: ApiServerInMemory, *arguments: str, name: str = "orders") -> Result:
    result = CliRunner().invoke(main, ["logs", name, *arguments, "--kubeconfig", str(server.kubeconfig)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ([], "orders-driver-17 driver"),
        (["--attempt", "9"], "orders-driver-9 driver"),
        (["--previous"], "orders-driver-16 driver"),
        (["--container", "reconcile"], "orders-driver-17 reconcile"),
        (["--follow"], "orders-driver-17 driver"),
        (["--tail", "1"], "last line"),
    ],
)
def test_the_log_is_that_of_the_driver_that_was_asked_for(
    server: ApiServerInMemory, options: list[str], first: str
) -> None:
    result = run(server, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == first
    assert ("follow" in server.queries[-1]) == ("--follow" in options)


def test_an_attempt_that_has_no_pod_yet_shows_the_one_before_and_says_so(server: ApiServerInMemory) -> None:
    del server.pods[2]
    result = run(server)
    assert result.stdout.splitlines()[0] == "orders-driver-16 driver"
    assert result.stderr == "Attempt 17 has no pod; this is attempt 16.\n"
    assert run(server, "--previous").stdout.splitlines()[0] == "orders-driver-16 driver"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attempt", "10"], "The pod of attempt 10 of shop/orders is gone: spec.history (2) says how many ended pods are "
         "kept; there are attempt 9: orders-driver-9 (Succeeded); attempt 16: orders-driver-16 (Failed); attempt 17: "
         "orders-driver-17 (Running)."),
        (["--attempt", "18"], "shop/orders has had no attempt 18 yet; the latest is 17."),
    ],
)  # fmt: skip
def test_a_pod_that_is_not_there_is_named_with_those_that_are(
    server: ApiServerInMemory, options: list[str], said: str
) -> None:
    result = run(server, *options)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{said}\n")


def test_where_every_pod_is_gone_the_last_message_are_told(server: ApiServerInMemory) -> None:
    server.pods.clear()
    driver = {"attempt": 17, "ended": "Died", "message": "The kernel killed it."}
    server.streams["orders"] = changed(STREAM, {"status.driver": driver})
    result = run(server)
    assert (result.exit_code, result.stderr) == (
        1,
        "The pod of attempt 17 of shop/orders is gone: spec.history (2) says how many ended pods are kept; no other is there. "
        "Its last message: The kernel killed it.\n",
    )
    assert "No pod of an attempt before 17 of shop/orders is there" in run(server, "--previous").stderr


def test_a_stream_that_has_had_no_driver_says_so(server: ApiServerInMemory) -> None:
    server.pods.clear()
    server.streams["orders"] = changed(STREAM, {"status": {"phase": "Pending"}})
    assert run(server).stderr == "shop/orders has had no driver yet (it is Pending).\n"


def test_a_container_that_has_not_started_is_one_sentence(server: ApiServerInMemory) -> None:
    server.not_yet = 1
    result = run(server)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        'Pod shop/orders-driver-17 has no such log yet: container "driver" in pod "orders-driver-17" is waiting to start: '
        "PodInitializing.\n"
    )


def test_a_pod_without_a_node_says_so_and_is_followed_once_it_has_one(server: ApiServerInMemory) -> None:
    waiting = {**server.pods[2], "spec": {}}
    placed, server.pods[2] = server.pods[2], waiting
    assert run(server).stderr == "Pod shop/orders-driver-17 has no such log yet: it waits for a node.\n"
    server.on_list = lambda looks: server.pods.__setitem__(2, placed) if looks == 3 else None
    result = run(server, "--follow")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "orders-driver-17 driver")
    assert "it waits for a node. Waiting for it; press Ctrl-C to stop." in result.stderr


def test_following_waits_for_a_container_that_has_not_started(server: ApiServerInMemory) -> None:
    server.not_yet = 3
    result = run(server, "--follow")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "orders-driver-17 driver")
    assert result.stderr.count("Waiting for it; press Ctrl-C to stop.") == 1
    assert "--container reconcile" in result.stderr


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ("list pods", "You may not list pods in namespace shop; ask for the right to list pods in namespace shop."),
        ("get pods/log", "You may not read the log of pod shop/orders-driver-17; ask for the right to get pods/log in "
         "namespace shop."),
    ],
)  # fmt: skip
def test_a_right_that_is_missing_is_named(server: ApiServerInMemory, right: str, said: str) -> None:
    server.forbidden = {right}
    result = run(server)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{said}\n")


def test_a_stream_that_is_not_there_is_one_sentence(server: ApiServerInMemory) -> None:
    result = run(server, name="refunds")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("There is no such stream: cannot read stream shop/refunds.")


def test_an_attempt_and_the_previous_one_are_not_asked_for_together(server: ApiServerInMemory) -> None:
    result: Any = run(server, "--previous", "--attempt", "3")
    assert result.exit_code == 2
    assert "--previous and --attempt each choose a driver" in result.stderr
