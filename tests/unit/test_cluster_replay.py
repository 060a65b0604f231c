"""`exactlyonce replay NAME`: the StreamReplay that it creates, and how it follows one, against an API server over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli import cluster_replay
from exactlyonce.cli.main import main
from tests.api_server_in_memory import ApiServerInMemory
from tests.resource_documents import document

RANGES = '{"orders":{"0":[100,200],"1":[5,9]}}'


def counted(phase: str, landed: int, message: str, **others: Any) -> dict[str, Any]:
    return {"phase": phase, "message": message, "records": {"asked": 10, "replayed": landed}, **others}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerInMemory]:
    made = document({"spec.checkpoint": {"local": {"path": "/checkpoint"}}})
    made["metadata"] |= {"namespace": "shop", "uid": "uid-1", "resourceVersion": "1", "generation": 1}
    monkeypatch.setattr(cluster_replay, "_LOOK_SECONDS", 0.0)
    with ApiServerInMemory(tmp_path, {made["metadata"]["name"]: made}) as started:
        yield started


def replay(server: ApiServerInMemory, *arguments: str) -> Result:
    options = ["--kubeconfig", str(server.kubeconfig), "-n", "shop"]
    return CliRunner().invoke(main, ["replay", "orders", *options, *arguments])


def test_without_yes_the_stream_replay_is_shown_that_the_api_server_has_checked_and_none_is_created(
    server: ApiServerInMemory,
) -> None:
    result = replay(server, "--id", "12/orders-0/340")
    assert result.exit_code == 0, result.output
    shown = yaml.safe_load(result.stdout)
    assert (shown["kind"], shown["spec"]["from"]) == ("StreamReplay", {"failures": {"ids": ["12/orders-0/340"]}})
    assert "Nothing was created; --yes creates this StreamReplay." in result.stderr
    assert server.queries == [{"fieldValidation": ["Strict"], "dryRun": ["All"]}]
    assert not server.replays


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ((), {"from": {"failures": {}}}),
        (
            (
                "--between",
                "2026-11-24T22:00",
                "2026-11-25",
                "--matching",
                "division",
                "--limit",
                "500",
                "--chunk",
                "50",
            ),
            {
                "from": {
                    "failures": {
                        "from": "2026-11-24T22:00:00Z",
                        "until": "2026-11-25T00:00:00Z",
                        "errorMatching": "division",
                    }
                },
                "limit": 500,
                "chunk": 50,
            },
        ),
        (("--from", "dead-letters", "--id", "orders-0/340"), {"from": {"deadLetters": {"ids": ["orders-0/340"]}}}),
        (
            ("--from", "ranges", "--ranges", RANGES, "--into", "public.other", "--backfill", "january"),
            {
                "from": {
                    "ranges": {
                        "positions": [
                            {"topic": "orders", "partition": 0, "from": 100, "until": 200},
                            {"topic": "orders", "partition": 1, "from": 5, "until": 9},
                        ]
                    }
                },
                "into": {"table": "public.other", "backfill": "january"},
            },
        ),
        (
            ("--from", "ranges", "--by-timestamp", "2026-01-01", "2026-02-01"),
            {"from": {"ranges": {"byTimestamp": {"from": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}}}},
        ),
    ],
)
def test_every_option_becomes_the_field_of_the_resource(
    server: ApiServerInMemory, arguments: tuple[str, ...], spec: dict[str, Any]
) -> None:
    result = replay(server, *arguments, "--yes")
    assert result.exit_code == 0, result.output
    ((name, made),) = server.replays.items()
    assert made["spec"] == {"stream": "orders", "chunk": 10_000, **spec}
    assert result.stdout.startswith(f"StreamReplay shop/{name} was created.\n")
    assert name.startswith("orders-20")


def test_the_sql_of_a_file_becomes_the_transform(server: ApiServerInMemory, tmp_path: Path) -> None:
    mended = tmp_path / "mended.sql"
    mended.write_text("SELECT id FROM source")
    assert replay(server, "--transform", str(mended), "--yes").exit_code == 0
    ((_, made),) = server.replays.items()
    assert made["spec"]["transform"] == {"sql": "SELECT id FROM source"}


def test_a_replay_is_followed_to_its_end_and_the_exit_status_says_how_it_ended(server: ApiServerInMemory) -> None:
    server.replay_statuses = [
        counted("Pending", 0, "It waits for its turn."),
        counted("Running", 4, "6 records of 1 range are being replayed."),
        counted("Running", 4, "6 records of 1 range are being replayed."),
        counted("Succeeded", 10, "10 of 10 records have landed."),
    ]
    result = replay(server, "--yes", "--wait")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1:] == [
        "Pending, 0 of 10 records landed: It waits for its turn.",
        "Running, 4 of 10 records landed: 6 records of 1 range are being replayed.",
        "Succeeded, 10 of 10 records landed: 10 of 10 records have landed.",
    ]
    server.replay_statuses = [
        counted("Failed", 9, "1 record is in quarantine still.", problems=["It \x1b[2J failed again"])
    ]
    failed = replay(server, "--yes", "--wait", "-o", "json")
    assert (failed.exit_code, json.loads(failed.stdout)["status"]["phase"]) == (1, "Failed")
    assert "It [2J failed again" in failed.stderr, "what a database said does not act on a terminal"
    server.replay_statuses = [counted("Running", 4, "It runs.")]
    late = replay(server, "--yes", "--wait", "--timeout", "1ms")
    assert late.exit_code == 1
    assert "did not end within" in late.stderr


def test_what_cannot_be_replayed_or_may_not_be_created_is_refused_by_a_sentence(server: ApiServerInMemory) -> None:
    assert "whole number of records per second" in replay(server, "--limit", "0.5", "--yes").stderr
    unknown = replay(server, "--id", "340", "--yes")
    assert (unknown.exit_code, "BATCH/PARTITION/POSITION" in unknown.stderr) == (1, True)
    server.forbidden = {"create streamreplays"}
    refused = replay(server, "--yes")
    assert refused.exit_code == 1
    assert "ask for the right to create streamreplays in namespace shop." in refused.stderr
    server.streams["orders"]["spec"]["sink"]["postgres"] |= {"write": "Upsert", "keys": ["id"]}
    assert "write: Upsert has no version" in replay(server).stderr
    assert not server.replays


def test_a_create_without_an_answer_names_the_replay_that_may_be_there(server: ApiServerInMemory) -> None:
    server.loses_answers = True
    lost = replay(server, "--yes")
    ((name, _),) = server.replays.items()
    assert lost.exit_code == 1
    assert f"It may have been created: look with `kubectl get streamreplay {name} -n shop`" in lost.stderr
    assert "may have been created" not in replay(server).stderr, "a dry run creates none"
