"""`exactlyonce checkpoint` over every golden checkpoint: the restart that it tells is the one that was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.state import Damaged, read_generation
from exactlyonce.cli.main import main
from exactlyonce.connectors.kafka.codec import CODEC
from testbed.golden import ENDS, START
from tests.checkpoints import GOLDEN, golden_states
from tests.restart_table import FAILS, GOES_ON, GOES_ON_WRONGLY

OTHER_QUERY = {"two-sources", "file-source"}


def run(*given: str) -> Result:
    return CliRunner().invoke(main, [*given])


def shown(state: str) -> tuple[int, dict[str, Any]]:
    ended = run("checkpoint", str(GOLDEN / state), "-o", "json")
    return ended.exit_code, json.loads(ended.stdout)["checkpoint"]


@pytest.mark.parametrize("state", [*GOES_ON, *GOES_ON_WRONGLY])
def test_it_names_the_batch_that_spark_was_seen_to_run_first(state: str) -> None:
    first = {**GOES_ON, **GOES_ON_WRONGLY}[state][0][0]
    restart = shown(state)[1]["restart"]
    assert (restart["kind"] in ("Continues", "RunsAgain"), restart["batch"]) == (True, first)


@pytest.mark.parametrize("state", FAILS)
def test_it_names_the_error_that_spark_was_seen_to_fail_with_and_the_batch_that_ran_before(state: str) -> None:
    ran, error = FAILS[state]
    code, found = shown(state)
    restart = found["restart"]
    assert (code, restart["kind"]) == (2, "Fails")
    assert restart["condition"] in error or error in restart["condition"]
    assert restart["batch"] == (ran[0][0] if ran else None)


@pytest.mark.parametrize("state", [state for state in golden_states() if state not in OTHER_QUERY])
def test_what_a_stream_would_call_damage_is_among_the_oddities(state: str) -> None:
    found = read_generation(LocalLogStore(str(GOLDEN)), CODEC, state)
    oddities = {oddity["name"] for oddity in shown(state)[1]["oddities"]}
    if isinstance(found, Damaged) and state != "commits-version-3":  # which is read here, and run by no stream
        assert found.damage.value in oddities
    elif not isinstance(found, Damaged):
        assert oddities == set()


def test_a_batch_has_its_range_of_each_partition() -> None:
    batches = {it["batch"]: it["sources"][0]["words"] for it in shown("planned")[1]["batches"]}
    assert batches[0] == words(START, ENDS[0])
    assert batches[3] == words(ENDS[2], ENDS[3])


def words(start: Any, end: Any) -> str:
    moved = [(key, start[key], end[key]) for key in end if start[key] != end[key]]
    return ", ".join(f"golden/{key.key} {low}..{high} ({high - low})" for key, low, high in moved)


def test_lost_commits_are_told_and_need_a_person() -> None:
    code, found = shown("commits-behind")
    assert (code, found["restart"]["unproven"]) == (2, [1, 1])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("checkpoint", "/no/such/folder"), "There is no folder /no/such/folder"),
        (("inspect", __file__), "is a file; name the folder that it is in."),
        (("inspect", "hdfs://node/folder"), "is neither a path of this machine nor on s3a://"),
        (("inspect", "/tmp", "--region", "eu-central-1"), "--region belongs to a PATH on s3a://"),
        (("inspect", str(GOLDEN / "planned"), "--checkpoint", str(GOLDEN / "planned")), "has no _spark_metadata"),
    ],
)
def test_bad_input_gets_one_sentence(given: tuple[str, ...], sentence: str) -> None:
    ended = run(*given)
    assert ended.exit_code == 1
    assert sentence in ended.output
    assert len(ended.output.splitlines()) == 1


def test_a_folder_of_neither_kind_and_a_streams_location_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert "is neither a checkpoint" in run("inspect", str(tmp_path)).output
    (tmp_path / "generation-000003-a7").mkdir()
    assert f"the latest is {tmp_path.resolve()}/generation-000003-a7" in run("checkpoint", str(tmp_path)).output


def test_an_output_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    assert "use `exactlyonce inspect`" in run("checkpoint", str(tmp_path)).output
    assert "shown nothing" in run("inspect", str(tmp_path)).output


def test_a_file_that_may_not_be_read_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_bytes(b"v1")

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    ended = run("checkpoint", str(tmp_path))
    assert (ended.exit_code, len(ended.output.splitlines())) == (1, 1)
    assert "offsets/0: Permission denied" in ended.output
