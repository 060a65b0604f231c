"""A stream continues the output of a query of Spark's own file sink: readers of the folder see the rows of both, each once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.reconcile.loop import Done, Halted
from scripts.make_golden_file_queries import BATCHES, write_source
from testbed.file_query import run_jobs
from testbed.postgres import Postgres
from tests.combinations import EVERY_MODE, in_full
from tests.file_queries import made
from tests.folder_rig import FolderRig

pytestmark = pytest.mark.seconds(25)

NEW = in_full(7, otherwise=6)
"""Files that the query has not read: one batch each behind the seed, up to the compaction at 19."""


def test_the_rows_of_the_query_and_of_the_stream_are_read_once_each_though_a_driver_is_killed_before_it_shows_the_first(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    """The query was killed between its part files and its entry of batch 12, ran again, and ended: tests/golden."""
    query = made("equal", tmp_path)
    write_source(query / "source", 0, BATCHES + NEW)
    output = query / "output"
    inspected = told_by("inspect", str(output), "--checkpoint", str(query / "checkpoint"), "-o", "json")
    assert inspected["comparison"]["kind"] == "Equal", inspected
    latest = inspected["output"]["continueAfterBatch"]
    rig = FolderRig(postgres_18, tmp_path, name, **continuing(query, latest))
    if EVERY_MODE:  # every refusal: tests/unit/test_former_output.py
        refused = rig.run(changes=continuing(query, latest - 1))
        assert isinstance(refused, Halted), rig.story()
        assert f"ends with batch {latest}, and continueAfterBatch says {latest - 1}" in refused.message
    crash = f"publish.prepared@{latest + 1}=kill-driver"
    crash += in_full(f" batch.landed@{latest + 2}=kill-driver", otherwise="")
    assert isinstance(rig.run(crash=crash), Done), rig.story()

    every = Counter(range(BATCHES + NEW))
    assert read_by_spark(output, tmp_path) == every
    resource = tmp_path / "stream.yaml"
    resource.write_text(yaml.safe_dump(rig.document()))
    stream = (str(resource), "--state", str(tmp_path / "state"), "--secrets", str(rig.secrets))
    assert ids_in([Path(file["address"]) for file in told_by("files", *stream, "-o", "json")]) == every

    orphans = told_by("files", *stream, "--orphans", "-o", "json")
    assert [ids_in([Path(orphan["address"])]) for orphan in orphans] == [Counter({BATCHES - 1: 1})]
    removed = CliRunner().invoke(main, ["files", *stream, "--remove-orphans", "--yes"])
    assert removed.exit_code == 0, removed.output
    assert not any(Path(orphan["address"]).exists() for orphan in orphans)
    assert ids_in(list(output.glob("*.json"))) == every, "what is left in the folder is what readers are shown"


def continuing(query: Path, latest: int) -> dict[str, Any]:
    return {
        "spec.source.files": {
            "path": str(query / "source"),
            "minFileAge": "0s",
            "maxFilesPerTrigger": 1,
            "start": {"from": "SparkCheckpoint", "checkpoint": str(query / "checkpoint")},
        },
        "spec.source.format": {"schema": "id BIGINT, at TIMESTAMP"},
        "spec.transform": {"sql": "SELECT id, at FROM source"},
        "spec.sink": {
            "files": {"path": str(query / "output"), "format": "Json", "continueAfterBatch": latest},
        },
    }


def told_by(*arguments: str) -> Any:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ids_in(paths: list[Path]) -> Counter[int]:
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return Counter(json.loads(line)["id"] for line in lines)


def read_by_spark(output: Path, folder: Path) -> Counter[int]:
    (told,) = run_jobs([("read", output)], folder / "read.log")
    assert told.error is None, told
    return Counter(map(int, told.found.split()))
