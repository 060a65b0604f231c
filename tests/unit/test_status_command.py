"""What `exactlyonce status` shows of streams, and what it says where it cannot look."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from rich.console import Console, RenderableType

from exactlyonce.cli import completion
from exactlyonce.cli.ages import age
from exactlyonce.cli.main import main
from exactlyonce.cli.status import as_data, show_status
from exactlyonce.cli.stream_view import detail, table
from exactlyonce.control.cluster_reader import ClusterReader, ClusterSilent, Event
from tests.resource_documents import changed, document

WIDE = 200
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def ago(**lapse: float) -> str:
    return (NOW - timedelta(**lapse)).isoformat().replace("+00:00", "Z")


def stream(name: str = "orders", **changes: Any) -> dict[str, Any]:
    """A stream that runs, as the API server gives it."""
    status = {
        "phase": "Running",
        "message": "Attempt 17 runs.",
        "attempt": 17,
        "verdict": {
            "kind": "ReplayBatch",
            "batch": 4211,
            "message": "Batch 4211 was planned and has not landed.",
            "attempt": 17,
            "at": ago(hours=2),
            "evidence": [{"words": "offsets/4211 is there, commits/4211 is not", "planned": 4211}],
        },
        "driver": {"attempt": 17, "podName": "orders-driver-17", "image": "spark:1.0", "startedAt": ago(hours=2)},
        "checkpoint": {"generation": 3, "location": "s3a://lake/generation-000003-a17"},
        "progress": {
            "batch": 4215,
            "landedAt": ago(seconds=7),
            "lagRecords": 77,
            "lagSeconds": 90,
            "oldestRecordAt": ago(seconds=125),
        },
        "consecutiveFailures": {"endings": 0, "batchFailures": 0},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Running", "message": "The driver runs.",
             "lastTransitionTime": ago(hours=2)},
        ],
    }  # fmt: skip
    metadata = {"metadata.creationTimestamp": ago(days=12), "metadata.uid": "u-1", "metadata.managedFields": [{}]}
    made = document({**metadata, "status": status}, name=name)
    return changed(made, {path.replace("__", "."): value for path, value in changes.items()})


def printed(shown: RenderableType, width: int = WIDE) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def lines(shown: RenderableType) -> list[list[str]]:
    return [line.split() for line in printed(shown).splitlines()]


def test_a_stream_is_one_line_with_what_a_person_asks_first() -> None:
    head, row = lines(table([stream()], NOW, with_namespace=False, width=WIDE))
    assert head == ["NAME", "PHASE", "READY", "BATCH", "LAG-RECORDS", "BEHIND", "VERDICT", "ATTEMPT", "AGE", "MESSAGE"]
    assert row[:9] == ["orders", "Running", "True", "4215", "77", "2m5s", "ReplayBatch", "17", "12d"]
    assert " ".join(row[9:]) == "Attempt 17 runs."


@pytest.mark.parametrize("with_namespace", [False, True])
@pytest.mark.parametrize("width", [44, 60, 80, 100, 132, 160])
def test_a_narrow_screen_leaves_columns_out_and_cuts_neither_name_nor_phase_nor_verdict(
    width: int, with_namespace: bool
) -> None:
    streams = [stream(), stream("returns-of-europe", status__phase="BackingOff", status__message=99 * "long ")]
    text = printed(table(streams, NOW, with_namespace=with_namespace, width=width), width)
    assert max(map(len, text.splitlines())) <= width
    for whole in ("orders", "Running", "BackingOff", "ReplayBatch"):
        assert whole in text
    if width >= 60:
        assert "returns-of-europe" in text
    rows = [line.split() for line in text.splitlines()]
    assert {"NAME", "PHASE", "VERDICT"} <= set(rows[0])
    if width == 80:
        assert rows[0][-4:] == ["PHASE", "LAG-RECORDS", "BEHIND", "VERDICT"]
    if width == 160:
        assert rows[0][-3:] == ["ATTEMPT", "AGE", "MESSAGE"]


def test_a_name_that_is_longer_than_the_screen_is_folded() -> None:
    text = printed(table([stream(49 * "o")], NOW, with_namespace=False, width=50), 50)
    assert text.count("o") - "orders".count("o") >= 49 - 1
    assert "Running" in text
    assert "ReplayBatch" in text
    assert "…" not in text


def test_how_far_behind_a_stream_is_grows_while_nobody_writes_its_status() -> None:
    later = lines(table([stream()], NOW + timedelta(hours=3), with_namespace=False, width=WIDE))[1]
    assert later[5] == "3h2m"


def test_a_lag_that_is_not_measured_now_is_marked() -> None:
    silent = stream(status__progress__lagProblem="Kafka at kafka:9092 does not answer.")
    assert lines(table([silent], NOW, with_namespace=False, width=WIDE))[1][4] == "77?"
    assert "Not measured now: Kafka at kafka:9092 does not answer." in printed(detail(silent, [], NOW))


def test_a_stream_that_no_operator_has_looked_at_is_pending() -> None:
    new = document({"metadata.creationTimestamp": ago(seconds=3), "metadata.uid": "u-2"})
    row = lines(table([new], NOW, with_namespace=True, width=WIDE))[1]
    assert row == ["shop", "orders", "Pending", "-", "-", "-", "-", "-", "-", "3s"]
    assert "Pending" in printed(detail(new, [], NOW))


def test_one_stream_is_shown_with_lag_driver_checkpoint_verdict_and_its_evidence() -> None:
    events = [Event(NOW - timedelta(minutes=3), True, "BackingOff", "The database does not answer.", 4)]
    text = printed(detail(stream(spec__objectives={"lagSeconds": 60}), events, NOW))
    for said in (
        "shop/orders",
        "77 records; the oldest was written 2m5s ago",
        "(objective 60s)",
        "batch 4215, 7s ago",
        "attempt 17, pod orders-driver-17, started 2h ago, image spark:1.0",
        "generation 3 at s3a://lake/generation-000003-a17",
        "ReplayBatch(4211), for attempt 17, 2h ago",
        "Batch 4211 was planned and has not landed.",
        "- offsets/4211 is there, commits/4211 is not",
        "The driver runs.",
        "The database does not answer.",
        "4 times",
    ):
        assert said in text, said


def test_a_stream_in_trouble_says_what_and_when_it_goes_on() -> None:
    text = printed(
        detail(
            stream(
                status__phase="BackingOff",
                status__consecutiveFailures={
                    "endings": 3,
                    "batch": 4216,
                    "batchFailures": 2,
                    "retryAt": ago(seconds=-40),
                },
                status__driver={"attempt": 17, "ended": "OutOfMemory", "message": "The kernel killed it."},
            ),
            [],
            NOW,
        )
    )
    assert "3 attempts in a row ended without landing a batch; batch 4216 has failed 2 times" in text
    assert "It ended: OutOfMemory. The kernel killed it." in text


def test_what_is_wrong_with_a_spec_is_its_message() -> None:
    row = printed(table([stream(status__specProblem="spec.sink: give one.")], NOW, with_namespace=False, width=WIDE))
    assert "spec.sink: give one." in row


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (601, "10m"), (3_600, "1h"), (18_300, "5h5m"),
     (86_399, "23h"), (86_400, "1d"), (100_000, "1d3h"), (1_036_800, "12d"), (-5, "0s")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_does(seconds: int, shown: str) -> None:
    assert age(ago(seconds=seconds), NOW) == shown


class Look:
    """A cluster with these streams."""

    namespace = "shop"

    def __init__(self, *streams: dict[str, Any], silent_after: int = 10**9) -> None:
        self._streams, self._left = streams, silent_after

    def streams(self, namespace: str | None) -> list[dict[str, Any]]:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return [it for it in self._streams if namespace in (None, it["metadata"]["namespace"])]

    def stream(self, namespace: str, name: str) -> dict[str, Any]:
        return next(it for it in self._streams if it["metadata"]["name"] == name)

    def events(self, stream: dict[str, Any]) -> list[Event]:
        return []


def shown(cluster: Any, name: str | None = None, namespace: str | None = "shop", **how: bool) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    status = show_status(cluster, name, namespace, **{"watch": False, "as_json": False, **how}, console=console)
    assert isinstance(console.file, io.StringIO)
    return status, console.file.getvalue()


def test_the_exit_status_says_whether_a_stream_that_is_shown_has_halted() -> None:
    halted = stream("returns", status__phase="Halted")
    assert shown(Look(stream()))[0] == 0
    assert shown(Look(stream(), halted))[0] == 2
    assert shown(Look(stream(), halted), "orders")[0] == 0
    assert shown(Look(halted), "returns")[0] == 2


def test_where_there_is_none_it_is_said_and_how_to_see_all() -> None:
    assert shown(Look()) == (0, "There is no ExactlyOnceStream in namespace shop; -A shows all.\n")
    assert "in this cluster" in shown(Look(), namespace=None)[1]


def test_a_program_gets_what_the_api_server_says_without_its_own_bookkeeping() -> None:
    assert json.loads(json.dumps(as_data([stream()], one=True)))["status"]["attempt"] == 17
    listed: Any = as_data([stream(), stream("returns")], one=False)
    assert [it["metadata"]["name"] for it in listed] == ["orders", "returns"]
    assert all("managedFields" not in it["metadata"] for it in listed)


def test_a_watch_ends_by_ctrl_c_and_leaves_what_it_saw_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactlyonce.cli.status._REFRESH_SECONDS", 0.0)
    status, text = shown(Look(stream(), silent_after=1), watch=True)
    assert status == 0
    assert "ReplayBatch" in text


def test_a_cluster_that_cannot_be_found_is_one_sentence_and_status_1(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    result = CliRunner().invoke(main, ["status", "--kubeconfig", str(missing)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("No cluster can be found (")
    assert result.stderr.endswith("name one with --kubeconfig or --context.\n")


def test_a_cluster_that_does_not_answer_is_one_sentence_and_status_1(tmp_path: Path) -> None:
    with pytest.raises(ClusterSilent, match=r"^Cannot list streams in namespace shop: the API server does not answer"):
        _look_at_nothing(tmp_path).streams("shop")
    result = CliRunner().invoke(main, ["status", "--kubeconfig", str(tmp_path / "config")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1


def test_every_command_is_there_where_the_module_is_run_as_the_image_does() -> None:
    command = [sys.executable, "-m", "exactlyonce.cli.main", "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed = {line.split()[0] for line in shown.partition("Commands:")[2].splitlines() if line.strip()}
    assert main.commands.keys() <= listed


def test_one_stream_of_all_namespaces_is_refused() -> None:
    result = CliRunner().invoke(main, ["status", "orders", "-A"])
    assert result.exit_code == 2
    assert "leave -A out" in result.stderr


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_EXACTLYONCE_COMPLETE" in result.output


def test_kubectl_gets_candidates_a_line_each_and_a_directive_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.kubectl_complete(main, ["st"]) == 0
    assert capsys.readouterr().out == "status\n:4\n"
    completion.kubectl_complete(main, ["su"])
    assert capsys.readouterr().out == "suspend\n:4\n"
    completion.kubectl_complete(main, ["status", "--wat"])
    assert capsys.readouterr().out == "--watch\n:4\n"


def test_names_of_streams_are_completed_from_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterReader, "connect", lambda *given: Look(stream(), stream("returns"), stream("refunds")))
    assert _candidates(["status", "-n"], "s") == ["shop"]
    assert _candidates(["status"], "re") == ["returns", "refunds"]
    for command in ("logs", "suspend", "resume", "restart"):
        assert _candidates([command], "re") == ["returns", "refunds"]
        assert _candidates([command, "-n"], "s") == ["shop"]
    for command in ("explain", "offsets"):
        assert _candidates([command], "re") == ["returns", "refunds", "re"], (
            "and files, which the shell itself completes"
        )


def test_a_cluster_that_cannot_be_asked_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise ClusterSilent("no answer")

    monkeypatch.setattr(ClusterReader, "connect", fails)
    assert _candidates(["status"], "re") == []


def _candidates(before: list[str], begun: str) -> list[str]:
    made = get_completion_class("bash")
    assert made is not None
    found = made(main, {}, "exactlyonce", "_EXACTLYONCE_COMPLETE").get_completions(before, begun)
    return [item.value for item in found]


def _look_at_nothing(folder: Path) -> ClusterReader:
    """A kubeconfig whose server refuses connections."""
    config = folder / "config"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "none", "context": {"cluster": "none", "user": "me", "namespace": "shop"}}],
                "users": [{"name": "me", "user": {}}],
                "current-context": "none",
            }
        )
    )
    return ClusterReader.connect(config)
