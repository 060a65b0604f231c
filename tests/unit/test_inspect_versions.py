"""Checkpoints of other releases of Spark: what they left, and the forms of those that do not run on the Java that is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exactlyonce.cli.main import main
from scripts.make_golden_spark_versions import BATCHES, GOLDEN

RAN = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def shown(*given: str) -> dict[str, Any]:
    ended = CliRunner().invoke(main, [*given, "-o", "json"])
    assert ended.stderr == ""
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_the_page_names_the_releases_that_ran() -> None:
    page = (GOLDEN / "README.md").read_text()
    assert [version for version in RAN if f"- {version}" not in page] == []


@pytest.mark.parametrize("version", RAN)
def test_what_a_release_left_is_read_with_its_files_watermarks_and_state(version: str) -> None:
    folder = GOLDEN / version
    found = shown("inspect", str(folder / "output"), "--checkpoint", str(folder / "checkpoint"))
    batches = found["checkpoint"]["batches"]
    assert [it["sources"][0]["files"] for it in batches][:BATCHES] == [
        [f"file:///golden/source/{number:02}.json"] for number in range(BATCHES)
    ]
    assert all(it["plannedAt"] for it in batches)
    keeps_state = not version.startswith("2.")
    assert batches[-1]["watermark"] == ("2026-01-01T00:01:00.000Z" if keeps_state else None)
    assert [store["operator"] for store in found["checkpoint"]["state"]] == ["0"] * keeps_state
    assert (found["checkpoint"]["oddities"], found["checkpoint"]["queryId"] is not None) == ([], True)
    assert found["checkpoint"]["restart"]["kind"] == "Continues"
    assert found["comparison"]["kind"] == "Equal"


def write(folder: Path, files: dict[str, str]) -> str:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return str(folder)


def test_a_checkpoint_without_a_commit_log_runs_its_latest_batch_again(tmp_path: Path) -> None:
    """Spark 2.1 keeps no commit log and no settings (the commit log came with 2.2, apache/spark pull request 17219)."""
    offsets = {f"offsets/{n}": f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{1000 + n}}}\n{n}' for n in range(3)}
    found = shown("checkpoint", write(tmp_path, {"metadata": '{"id":"a"}', **offsets}))["checkpoint"]
    restart = found["restart"]
    assert (restart["kind"], restart["batch"], restart["unproven"]) == ("RunsAgain", 2, [0, 1])
    assert restart["plan"]["sources"][0]["words"] == "1 to 2"
    assert found["batches"][0]["plannedAt"] == "1970-01-01T00:00:01.000Z"


def test_a_commit_of_a_release_before_2_4_names_no_watermark(tmp_path: Path) -> None:
    files = {
        "metadata": '{"id":"a"}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}',
        "commits/0": "v1\n{}",
    }
    assert shown("checkpoint", write(tmp_path, files))["checkpoint"]["restart"]["kind"] == "Continues"
