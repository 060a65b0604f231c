"""`exactlyonce inspect` over what Spark's own file source and file sink left, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.cli.main import main
from exactlyonce.connectors.files.tenancy import Tenant, take_place
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.errors import Refused
from testbed.golden import ENDS
from tests.checkpoints import GOLDEN
from tests.file_queries import made, states
from tests.inspected import FAILS, READERS_FAIL, RESTARTS


def inspected(state: Path, *more: str) -> tuple[int, dict[str, Any]]:
    given = [str(state / "output"), "--checkpoint", str(state / "checkpoint"), "-o", "json", *more]
    ended = CliRunner().invoke(main, ["inspect", *given])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
    return ended.exit_code, json.loads(ended.stdout)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_state_has_an_expectation() -> None:
    assert sorted([*RESTARTS, *FAILS]) == sorted(states())


@pytest.mark.parametrize("state", RESTARTS)
def test_it_says_which_batch_a_restart_runs_first(tmp_path: Path, state: str) -> None:
    restart = inspected(made(state, tmp_path))[1]["checkpoint"]["restart"]
    assert (restart["kind"], restart["batch"]) == RESTARTS[state]


@pytest.mark.parametrize("state", FAILS)
def test_it_says_with_which_error_a_restart_fails(tmp_path: Path, state: str) -> None:
    code, found = inspected(made(state, tmp_path))
    restart = found["checkpoint"]["restart"]
    assert (code, restart["kind"], restart["condition"]) == (2, "Fails", FAILS[state])


@pytest.mark.parametrize(
    ("state", "oddity"),
    [
        ("source-compact-missing", "CompactFileMissing"),
        ("source-gap", "EntryMissing"),
        ("source-torn", "EntryTorn"),
        ("source-empty", "EntryEmpty"),
        ("source-version-later", "LogVersionUnsupported"),
    ],
)
def test_damage_of_a_sources_log_is_named(tmp_path: Path, state: str, oddity: str) -> None:
    assert [it["name"] for it in inspected(made(state, tmp_path))[1]["checkpoint"]["oddities"]] == [oddity]


@pytest.mark.parametrize(
    ("state", "oddity"),
    [
        ("sink-compact-missing", "CompactFileMissing"),
        ("sink-gap", "EntryMissing"),
        ("sink-torn", "EntryTorn"),
        ("sink-empty", "EntryEmpty"),
        ("part-missing", "PartFileMissing"),
    ],
)
def test_damage_of_a_sinks_log_is_named_and_readers_fail(tmp_path: Path, state: str, oddity: str) -> None:
    code, found = inspected(made(state, tmp_path))
    names = [it["name"] for it in found["output"]["oddities"]]
    # The first try of batch 12 has left a file, which is known to be of no entry as long as the log is whole.
    assert (code, names) == (2, [oddity, "PartFilesOfNoEntry"] if state == "part-missing" else [oddity])
    assert "Readers with Spark fail" in found["output"]["message"]
    assert state in READERS_FAIL


def test_a_log_that_is_not_whole_names_no_orphans(tmp_path: Path) -> None:
    assert inspected(made("sink-compact-missing", tmp_path))[1]["output"]["orphans"] is None


def test_a_person_sees_which_files_each_batch_read(tmp_path: Path) -> None:
    state = made("equal", tmp_path)
    batches = inspected(state, "--batches", "20")[1]["checkpoint"]["batches"]
    read = {it["batch"]: it["sources"][0]["files"] for it in batches}
    assert read == {number: [f"file://{state}/source/{number:02}.json"] for number in range(13)}


def test_files_of_batches_are_told_by_the_compact_file_where_their_own_are_gone(tmp_path: Path) -> None:
    state = made("equal", tmp_path)
    for number in range(9):
        (state / f"checkpoint/sources/0/{number}").unlink()
    batches = inspected(state, "--batches", "20")[1]["checkpoint"]["batches"]
    assert batches[3]["sources"][0]["files"] == [f"file://{state}/source/03.json"]


def test_a_batch_with_part_files_and_no_entry_is_told_with_its_files(tmp_path: Path) -> None:
    state = made("planned", tmp_path)
    code, found = inspected(state)
    named = {path.rpartition("/")[2] for path in found["output"]["files"]}
    parts = {path.name for path in (state / "output").glob("part-*")}
    assert code == 0, "a restart mends it"
    assert (found["comparison"]["kind"], found["comparison"]["batch"]) == ("PlannedOnly", 12)
    assert set(found["output"]["orphans"]) == parts - named
    assert len(parts - named) == 1


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("equal", "Equal"),
        ("listed", "Equal"),
        ("written", "WrittenNotCommitted"),
        ("two-sources", "Equal"),
        ("stateful", "Equal"),
    ],
)
def test_a_checkpoint_and_its_own_output_fit(tmp_path: Path, state: str, expected: str) -> None:
    code, found = inspected(made(state, tmp_path))
    assert (code, found["comparison"]["kind"], found["comparison"]["losesRows"]) == (0, expected, False)


def test_batches_that_are_committed_and_in_no_log_are_lost(tmp_path: Path) -> None:
    code, found = inspected(made("sink-behind", tmp_path))
    assert (code, found["comparison"]["kind"], found["comparison"]["lost"]) == (2, "CheckpointAhead", [11, 12])


def test_a_new_checkpoint_over_an_old_output_names_the_batches_that_were_and_would_be_dropped(tmp_path: Path) -> None:
    code, found = inspected(made("dropped", tmp_path))
    comparison = found["comparison"]
    assert (code, comparison["kind"]) == (2, "AnotherQuery")
    assert (comparison["already"], comparison["dropped"]) == ([0, 1, 2], [3, 12])
    assert "would drop those of batches 3 to 12" in comparison["message"]


def test_an_older_checkpoint_of_the_same_query_names_the_batches_that_would_be_dropped(tmp_path: Path) -> None:
    """A checkpoint that was restored to an earlier moment: its batches 10 to 12 are gone, and the output has them."""
    state = made("equal", tmp_path)
    for path in ("offsets", "commits", "sources/0"):
        for number in (10, 11, 12):
            (state / "checkpoint" / path / str(number)).unlink()
    code, found = inspected(state)
    assert (code, found["comparison"]["kind"], found["comparison"]["dropped"]) == (2, "SinkAhead", [10, 12])


def test_a_query_of_two_sources_has_a_range_of_each(tmp_path: Path) -> None:
    state = made("two-sources", tmp_path)
    first, *_ = inspected(state)[1]["checkpoint"]["batches"]
    assert [source["files"] for source in first["sources"]] == [
        [f"file://{state}/source/00.json"],
        [f"file://{state}/other-source/20.json"],
    ]


def test_a_query_that_keeps_state_shows_its_watermarks_and_the_size_of_its_state(tmp_path: Path) -> None:
    state = made("stateful", tmp_path)
    found = inspected(state)[1]["checkpoint"]
    files = [path for path in (state / "checkpoint/state/0").rglob("*") if path.is_file()]
    (operator,) = found["state"]
    assert (operator["operator"], operator["partitions"], operator["files"]) == ("0", 1, len(files))
    assert operator["sizeBytes"] == sum(path.stat().st_size for path in files)
    assert operator["latestVersion"] == len(found["batches"]), "version 1 is that of batch 0"
    assert found["batches"][-1]["watermark"] == "2026-01-01T00:02:00.000Z", "a minute before the latest record"


@pytest.mark.parametrize("state", ["planned", "sink-torn", "source-gap"])
def test_nothing_is_changed(tmp_path: Path, state: str) -> None:
    folder = made(state, tmp_path)
    before = snapshot(folder)
    inspected(folder)
    assert snapshot(folder) == before


def files_read(state: Path) -> dict[int, list[str] | None]:
    """The files that each batch of a query read, by their own names."""
    batches = inspected(state, "--batches", "20")[1]["checkpoint"]["batches"]
    read = {it["batch"]: it["sources"][0]["files"] for it in batches}
    return {
        number: None if files is None else [path.rpartition("/")[2] for path in files] for number, files in read.items()
    }


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param((), id="none"),
        pytest.param((3,), id="one whose successor is there, which holds its own line only"),
        pytest.param((0, 1, 3, 4), id="those before each compaction"),
        pytest.param((0, 1, "2.compact", 3, 4), id="all before the latest compaction"),
    ],
)
def test_each_batch_is_told_by_the_first_compaction_after_it_where_a_log_was_put_together_twice(
    tmp_path: Path, gone: tuple[int | str, ...]
) -> None:
    """Spark removes what a compaction holds too; the interval is the distance of the two, whatever the settings say."""
    state = made("by-three", tmp_path)
    for name in gone:
        (state / f"checkpoint/sources/0/{name}").unlink()
    assert files_read(state) == {number: [f"{number:02}.json"] for number in range(8)}


def test_a_batch_that_no_compaction_holds_is_not_told(tmp_path: Path) -> None:
    state = made("by-three", tmp_path)
    (state / "checkpoint/sources/0/6").unlink()
    code, found = inspected(state)
    assert (code, [it["name"] for it in found["checkpoint"]["oddities"]]) == (2, ["EntryMissing"])
    assert files_read(state)[6] is None


def test_the_next_compaction_follows_from_the_two_that_were(tmp_path: Path) -> None:
    output = inspected(made("by-three", tmp_path))[1]["output"]
    assert output["nextCompaction"] == 8


CONTINUES: dict[str, int | None] = {
    "by-three": None,
    "older-compact-missing": None,
    "sink-behind": 10,
    "planned": 11,
    "source-last-missing": 11,
    "two-sources": 2,
    "stateful": 4,
}
"""Behind which batch a stream continues, where it is not 12; None where it cannot, as in any log that is not whole."""


@pytest.mark.parametrize("state", states())
def test_what_it_says_of_continuing_is_what_a_stream_takes_and_nothing_else(tmp_path: Path, state: str) -> None:
    folder = made(state, tmp_path)
    found = inspected(folder)[1]["output"]
    expected = None if state in READERS_FAIL else CONTINUES.get(state, 12)
    assert found["continueAfterBatch"] == expected
    store = LocalLogStore(str(folder / "output"))
    said = found["latest"] if expected is None else expected
    tenant = Tenant("shop/orders", "ledger-1", "Json", (), "SparkMetadata", said)
    if expected is None:
        with pytest.raises(Refused):
            take_place(store, tenant)
    else:
        take_place(store, tenant)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            "equal",
            "continueAfterBatch: 12 a stream continues here, once the query has ended for good. It has to start where",
        ),
        (
            "sink-behind",
            "It has to start where batch 10 ends, as the checkpoint planned it: that is what readers are shown.",
        ),
        ("dropped", "This checkpoint does not say where batch 12 of the log ends: find out from the rows"),
    ],
)
def test_a_person_is_told_how_a_stream_continues(tmp_path: Path, state: str, words: str) -> None:
    folder = made(state, tmp_path)
    told = CliRunner().invoke(main, ["inspect", str(folder / "output"), "--checkpoint", str(folder / "checkpoint")])
    assert words in told.stdout


def test_nothing_is_said_of_continuing_a_folder_that_is_a_streams_or_of_which_the_log_alone_is_known(
    tmp_path: Path,
) -> None:
    output = made("equal", tmp_path) / "output"
    for looked_at in (output / "_spark_metadata", output):
        told = CliRunner().invoke(main, ["inspect", str(looked_at)])
        assert ("continueAfterBatch" in told.stdout) == (looked_at == output)
    take_place(LocalLogStore(str(output)), Tenant("shop/orders", "ledger-1", "Json", (), "SparkMetadata", 12))
    assert "continueAfterBatch" not in CliRunner().invoke(main, ["inspect", str(output)]).stdout


def test_without_a_checkpoint_a_person_is_told_to_compare_first(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["inspect", str(made("equal", tmp_path) / "output")])
    assert "continueAfterBatch: 12" in told.stdout
    assert "compare the folder with the query's checkpoint (--checkpoint) first." in told.stdout


def output_of(tmp_path: Path, latest: int) -> Path:
    """The output of a query that has shown its readers a batch, without rows."""
    (tmp_path / "output" / "_spark_metadata").mkdir(parents=True)
    for number in range(latest + 1):
        (tmp_path / "output" / "_spark_metadata" / str(number)).write_text("v1")
    return tmp_path / "output"


@pytest.mark.parametrize(
    ("state", "latest"), [("checkpointed", 2), ("planned", 3), ("planned", 2), ("commits-behind", 2)]
)
def test_where_the_latest_batch_ends_is_told_as_the_start_of_a_stream(tmp_path: Path, state: str, latest: int) -> None:
    """Of a query that reads topics: where the batch that readers are shown ends, whatever was committed."""
    output = output_of(tmp_path, latest)
    given = ["inspect", str(output), "--checkpoint", str(GOLDEN / state)]
    expected = {
        "from": "Offsets",
        "offsets": [
            {"topic": key.origin, "partition": key.key, "offset": offset} for key, offset in ENDS[latest].items()
        ],
    }
    found = json.loads(CliRunner().invoke(main, [*given, "-o", "json"]).stdout)
    assert (found["output"]["continueAfterBatch"], found["start"]) == (latest, expected)
    assert f"start: {json.dumps(expected)}" in CliRunner().invoke(main, given).stdout
    source = KafkaSource.model_validate({"bootstrapServers": "kafka:9092", "topics": ["t"], "start": found["start"]})
    assert len(source.start.offsets) == len(expected["offsets"])


@pytest.mark.parametrize(("state", "latest"), [("checkpointed", 9), ("two-sources", 1), ("file-source", 1)])
def test_no_start_is_told_where_the_checkpoint_does_not_say_one(tmp_path: Path, state: str, latest: int) -> None:
    given = ["inspect", str(output_of(tmp_path, latest)), "--checkpoint", str(GOLDEN / state), "-o", "json"]
    assert json.loads(CliRunner().invoke(main, given).stdout)["start"] is None
