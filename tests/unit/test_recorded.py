"""`explain` and `offsets` of a stream of a cluster: what is recorded, and whose rights are missing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactlyonce.cli.main import main
from tests.api_server_in_memory import ApiServerInMemory
from tests.resource_documents import changed, document

STREAM = document(
    {
        "metadata.uid": "u-1",
        "metadata.generation": 5,
        "status": {
            "phase": "Running",
            "message": "Attempt 17 runs.",
            "attempt": 17,
            "verdict": {
                "kind": "RebuildFromSink",
                "reason": "CheckpointLost",
                "batch": 4211,
                "message": "The checkpoint is gone.",
                "attempt": 17,
                "at": "2026-03-01T10:00:00Z",
                "evidence": [{"words": "the folder is empty", "files": 0}],
            },
            "driver": {"attempt": 17, "podName": "orders-driver-17"},
            "progress": {"batch": 4215},
        },
    }
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerInMemory]:
    monkeypatch.chdir(tmp_path)
    with ApiServerInMemory(tmp_path, {"orders": STREAM}) as made:
        # The client reads KUBECONFIG when it is imported.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(made.kubeconfig))
        yield made


def run(_server: ApiServerInMemory, *arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_recorded_verdict_says_when_it_was_made_and_that_it_is_not_of_now(server: ApiServerInMemory) -> None:
    result = run(server, "explain", "orders", "--kubeconfig", str(server.kubeconfig))
    assert (result.exit_code, result.stderr) == (0, "")
    for said in (
        "Stream    shop/orders",
        "Recorded  at 2026-03-01 ",
        "for attempt 17: it is not what would be decided now",
        "Verdict   RebuildFromSink(4211) CheckpointLost",
        "Message   The checkpoint is gone.",
        "  - the folder is empty",
        "  Phase   Running. Attempt 17 runs.",
        "  Driver  attempt 17, pod orders-driver-17",
        "  Landed  batch 4215",
    ):
        assert said in result.stdout, said


def test_a_program_is_told_that_the_verdict_is_recorded(server: ApiServerInMemory) -> None:
    found = json.loads(run(server, "explain", "orders", "-n", "shop", "-o", "json").stdout)
    assert (found["now"], found["recordedAt"], found["attempt"]) == (False, "2026-03-01T10:00:00Z", 17)
    assert (found["verdict"], found["reason"], found["batch"]) == ("RebuildFromSink", "CheckpointLost", 4211)
    assert found["evidence"] == [{"words": "the folder is empty", "files": 0}]


def test_a_stream_that_has_halted_is_explained_with_status_2(server: ApiServerInMemory) -> None:
    server.streams["orders"] = changed(STREAM, {"status.phase": "Halted", "status.message": "The ledger went back."})
    result = run(server, "explain", "orders")
    assert result.exit_code == 2
    assert "  Phase   Halted. The ledger went back." in result.stdout


def test_a_stream_that_nothing_was_decided_for_says_where_it_stands(server: ApiServerInMemory) -> None:
    server.streams["orders"] = changed(STREAM, {"status": {"phase": "Pending"}})
    result = run(server, "explain", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Nothing has been decided for shop/orders yet (it is Pending).\n"


@pytest.mark.parametrize("command", ["explain", "offsets"])
def test_a_file_of_that_name_goes_before_a_stream_of_the_cluster_unless_the_cluster_is_named(
    server: ApiServerInMemory, command: str
) -> None:
    Path("orders").write_text("kind: Secret")
    assert run(server, command, "orders").stderr.startswith("orders: there is no ExactlyOnceStream in this file")
    server.streams.clear()
    assert run(server, command, "orders", "-n", "shop").stderr.startswith("There is no such stream")


@pytest.mark.parametrize("command", ["explain", "offsets"])
def test_what_belongs_to_a_file_is_refused_for_a_stream_of_a_cluster(server: ApiServerInMemory, command: str) -> None:
    result = run(server, command, "orders", "--state", "state")
    assert result.exit_code == 2
    assert "--state belongs to a FILE, and orders is a stream of a cluster; leave it out." in result.stderr


def test_offsets_say_which_right_is_missing_and_where_the_lag_is_shown_without(server: ApiServerInMemory) -> None:
    server.forbidden = {"get secrets"}
    result = run(server, "offsets", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "You may not read secret shop/warehouse, which spec.sink.postgres.secretRef names; ask for the right to get secret "
        "warehouse in namespace shop. The ledger is queried with its login; `exactlyonce status orders -n shop` shows the lag "
        "without it.\n"
    )


def test_a_secret_that_is_not_there_is_named_with_its_field(server: ApiServerInMemory) -> None:
    result = run(server, "offsets", "orders")
    assert (
        "Cannot read secret shop/warehouse, which spec.sink.postgres.secretRef names: it is not there." in result.stderr
    )


def test_a_ledger_that_is_out_of_reach_from_here_is_one_sentence_without_the_password(
    server: ApiServerInMemory,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = str(taken.getsockname()[1])
        login: dict[str, Any] = {"host": "127.0.0.1", "port": port, "dbname": "shop", "user": "me"}
        server.secrets["warehouse"] = {**login, "password": "open sesame"}
        result = run(server, "offsets", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    (sentence,) = result.stderr.splitlines()
    assert f"me@127.0.0.1:{port}/shop" in sentence
    assert "open sesame" not in sentence
