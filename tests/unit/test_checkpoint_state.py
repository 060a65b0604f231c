"""Every state of a checkpoint is recognised by name: the golden folders, and each of their files torn at every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.checkpoint.generation import Generation, write_seed
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.state import Absent, CheckpointState, Damage, Damaged, Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from testbed.golden import ENDS, START
from tests.checkpoints import GOLDEN, golden_states, in_memory, readable
from tests.simulation.files import MemoryStore

READABLE: dict[str, tuple[int, int | None, Positions | None, Positions]] = {
    "checkpointed": (2, 2, ENDS[1], ENDS[2]),
    "planned": (3, 2, ENDS[2], ENDS[3]),
    "first-batch-planned": (0, None, START, ENDS[0]),
    "kafka-start-missing": (0, None, None, ENDS[0]),
    "offsets-version-2": (3, 2, ENDS[2], ENDS[3]),
    "commits-version-2": (3, 2, ENDS[2], ENDS[3]),
    "stateful": (1, 1, ENDS[0], ENDS[1]),
    "offsets-removed-in-part": (3, 2, ENDS[2], ENDS[3]),
    "with-ignored-files": (2, 2, ENDS[1], ENDS[2]),
    "checksum-file-empty": (2, 2, ENDS[1], ENDS[2]),
}
"""Folder -> planned batch, checkpointed batch, where the planned batch starts, where it ends."""

DAMAGED: dict[str, tuple[Damage, str, int | None]] = {
    "metadata-missing": (Damage.METADATA_MISSING, "the file metadata is missing", 2),
    "metadata-empty": (Damage.FILE_EMPTY, "metadata: it has no bytes", 2),
    "metadata-torn": (Damage.FILE_TORN, 'metadata: \'{"id":', 2),
    "offsets-missing": (Damage.OFFSETS_MISSING, "commits/2 exists and offsets/ is empty", 2),
    "offsets-gap": (Damage.OFFSETS_GAP, "offsets/0 is followed by offsets/2", 2),
    "previous-offsets-missing": (Damage.PREVIOUS_OFFSETS_MISSING, "offsets/2 exists and offsets/1 does not", 2),
    "previous-offsets-missing-planned": (Damage.PREVIOUS_OFFSETS_MISSING, "offsets/3 exists and offsets/2 does not", 3),
    "commits-missing": (Damage.COMMITS_MISSING, "commits/ is empty and offsets/2 exists", 2),
    "commits-behind": (Damage.COMMITS_MISSING, "commits ends at 0 and offsets/2 exists", 2),
    "commits-ahead": (Damage.COMMITS_AHEAD, "commits/2 exists and offsets ends at 1", 2),
    "commits-empty": (Damage.FILE_EMPTY, "commits/2: it has no bytes", 2),
    "commits-torn": (Damage.FILE_TORN, "commits/2: '{\"nextBatch' is not JSON", 2),
    "commits-version-3": (
        Damage.VERSION_UNSUPPORTED,
        "commits/1: its commit log version is v3; this release reads v1 and v2",
        1,
    ),
    "commits-version-later": (
        Damage.VERSION_UNSUPPORTED,
        "commits/2: its commit log version is v4; this release reads v1 and v2",
        2,
    ),
    "commits-foreign-number": (
        Damage.FOREIGN_NUMBER,
        "commits/+7 is not a log file, and Spark takes its name for batch 7",
        2,
    ),
    "commits-stray-checksum": (
        Damage.STRAY_CHECKSUM,
        "commits/.2.crc exists and commits/2 does not, so Spark could not write commits/2",
        2,
    ),
    "offsets-empty": (Damage.FILE_EMPTY, "offsets/3: it has no bytes", 3),
    "offsets-torn": (Damage.FILE_TORN, "offsets/3: it has 2 lines; expected are a version, the metadata", 3),
    "offsets-torn-with-checksum": (
        Damage.CHECKSUM_MISMATCH,
        "offsets/3: its content is not what .3.crc was made from",
        3,
    ),
    "offsets-altered": (Damage.CHECKSUM_MISMATCH, "offsets/3: its content is not what .3.crc was made from", 3),
    "offsets-version-later": (
        Damage.VERSION_UNSUPPORTED,
        "offsets/3: its offset log version is v3; this release reads v1 and v2",
        3,
    ),
    "offsets-foreign-number": (
        Damage.FOREIGN_NUMBER,
        "offsets/007 is not a log file, and Spark takes its name for batch 7",
        2,
    ),
    "offsets-stray-checksum": (
        Damage.STRAY_CHECKSUM,
        "offsets/.2.crc exists and offsets/2 does not, so Spark could not write offsets/2",
        1,
    ),
    "kafka-start-torn": (Damage.FILE_TORN, "sources/0/0: not JSON", 0),
    "state-without-offsets": (Damage.STATE_WITHOUT_OFFSETS, "state/ has content and offsets/ is empty", None),
    "two-sources": (Damage.FILE_TORN, "offsets/0: it names 2 sources where a stream has one", 0),
    "file-source": (Damage.FILE_TORN, "offsets/0: topic 'logOffset' has 0 where a map of partitions belongs", 0),
}
"""Folder -> what is wrong, how the sentence begins, the highest batch that is known to have been planned."""


def on_disk(state: str) -> CheckpointState:
    return read_generation(LocalLogStore(str(GOLDEN)), CODEC, state)


def test_every_golden_folder_is_claimed_by_one_of_the_two_tables() -> None:
    assert sorted([*READABLE, *DAMAGED]) == golden_states()


def test_every_damage_has_a_golden_folder() -> None:
    assert {damage for damage, _, _ in DAMAGED.values()} == set(Damage)


@pytest.mark.parametrize("state", READABLE)
def test_a_checkpoint_that_spark_goes_on_with_is_read(state: str) -> None:
    found = on_disk(state)
    assert isinstance(found, Readable), found
    assert (found.planned, found.checkpointed, found.planned_start, found.planned_end) == READABLE[state]
    assert found.stateful == (state == "stateful")


@pytest.mark.parametrize("state", DAMAGED)
def test_a_damaged_checkpoint_is_named_with_its_file(state: str) -> None:
    damage, words, highest_planned = DAMAGED[state]
    found = on_disk(state)
    assert isinstance(found, Damaged), found
    assert (found.damage, found.words[: len(words)], found.highest_planned) == (damage, words, highest_planned)


RAN_BATCH_0_AT_MOST = {
    "state-without-offsets",
    "two-sources",
    "file-source",
    "first-batch-planned",
    "kafka-start-torn",
    "kafka-start-missing",
}
"""They look like a seed. A generation of ours is always seeded, so batch 0 has no records in it and proves no run."""


@pytest.mark.parametrize("state", sorted({*READABLE, *DAMAGED} - RAN_BATCH_0_AT_MOST))
def test_what_a_query_wrote_is_never_taken_for_a_seed(state: str) -> None:
    assert on_disk(state).has_run


@pytest.mark.parametrize("state", golden_states())
def test_reading_changes_nothing(state: str) -> None:
    def snapshot() -> dict[Path, tuple[int, bytes]]:
        return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in GOLDEN.rglob("*") if file.is_file()}

    before = snapshot()
    on_disk(state)
    assert snapshot() == before


def test_a_folder_that_is_missing_or_has_no_logs_is_no_checkpoint(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    assert read_generation(store, CODEC, "nothing") == Absent()
    (tmp_path / "fresh" / "offsets").mkdir(parents=True)
    (tmp_path / "fresh" / "state").mkdir()
    (tmp_path / "fresh" / "metadata").write_bytes(b'{"id":"x"}')
    (tmp_path / "fresh" / "offsets" / ".0.7f1c.tmp").write_bytes(b"v1")
    assert read_generation(store, CODEC, "fresh") == Absent()


def test_storage_that_does_not_answer_is_no_state_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "offsets").write_bytes(b"a file where a folder belongs")
    with pytest.raises(StoreUnreachable, match="could not be listed"):
        read_generation(LocalLogStore(str(tmp_path)), CODEC, "checkpoint")


def test_one_file_that_cannot_be_read_is_no_state_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    for batch in (0, 1):
        (tmp_path / "c" / "offsets" / str(batch)).write_bytes(
            (GOLDEN / "planned" / "offsets" / str(batch)).read_bytes()
        )
    (tmp_path / "c" / "metadata").symlink_to("metadata")
    with pytest.raises(StoreUnreachable, match="could not be"):
        read_generation(LocalLogStore(str(tmp_path)), CODEC, "c")


@pytest.mark.parametrize(
    "name", ["2.bak", ".2", "x2", "2 ", "0x2", "1e3", "2.0", "", "--2", "2-", "\u0660\u0662x", "3_", "9" * 25 + "x"]
)
def test_a_file_that_spark_does_not_list_is_not_listed(name: str) -> None:
    store = in_memory("checkpointed")
    expected = readable(store, "checkpointed")
    store.files[f"checkpointed/offsets/{name}"] = b"anything"
    store.files[f"checkpointed/commits/{name}"] = b"anything"
    assert readable(store, "checkpointed") == expected


@pytest.mark.parametrize("name", ["002", "+1", "-1", "-0", "00", "\u0662"])
def test_a_number_in_disguise_that_is_not_beyond_the_latest_changes_nothing(name: str) -> None:
    store = in_memory("checkpointed")
    expected = readable(store, "checkpointed")
    store.files[f"checkpointed/offsets/{name}"] = b"anything"
    assert readable(store, "checkpointed") == expected


@pytest.mark.parametrize("name", ["003", "+3", "\u0663"])
def test_a_number_in_disguise_beyond_the_latest_is_what_spark_would_look_for(name: str) -> None:
    store = in_memory("checkpointed")
    store.files[f"checkpointed/offsets/{name}"] = b"anything"
    found = read_generation(store, CODEC, "checkpointed")
    assert isinstance(found, Damaged)
    assert (found.damage, found.words.split(" ")[0]) == (Damage.FOREIGN_NUMBER, f"offsets/{name}")


def test_a_folder_named_like_a_batch_is_not_listed() -> None:
    store = in_memory("checkpointed")
    expected = readable(store, "checkpointed")
    store.files["checkpointed/offsets/3/copy"] = b"anything"
    store.files["checkpointed/commits/0003/copy"] = b"anything"
    assert readable(store, "checkpointed") == expected


def test_logs_that_spark_has_pruned_at_their_beginning_are_whole() -> None:
    store = in_memory("planned")
    expected = readable(store, "planned")
    for path in ("offsets/0", "offsets/1", "commits/0", "commits/1"):
        del store.files[f"planned/{path}"]
    found = readable(store, "planned")
    assert (found.planned, found.planned_start, found.planned_end) == (3, ENDS[2], ENDS[3])
    assert (found.checkpointed, found.has_run) == (expected.checkpointed, True)


@pytest.mark.parametrize("path", ["offsets/0", "commits/0"])
def test_an_old_file_without_bytes_is_named_though_no_restart_reads_it(path: str) -> None:
    """A disk that lost the content of one file may have lost more."""
    store = in_memory("planned")
    store.files[f"planned/{path}"] = b""
    found = read_generation(store, CODEC, "planned")
    assert isinstance(found, Damaged)
    assert (found.damage, found.words) == (Damage.FILE_EMPTY, f"{path}: it has no bytes")


def test_state_files_survive_two_writers_where_the_commit_log_names_them_by_unique_ids() -> None:
    """What decides between going on and halting when the last driver of a stateful query may still live."""
    stateful = on_disk("stateful")
    assert isinstance(stateful, Readable)
    assert stateful.state_survives_two_writers
    default_provider = on_disk("checkpointed")
    assert isinstance(default_provider, Readable)
    assert not default_provider.state_survives_two_writers


def test_state_files_of_the_older_format_do_not_survive_two_writers() -> None:
    store = in_memory("stateful")
    for batch in (0, 1):
        store.files[f"stateful/commits/{batch}"] = b'v1\n{"nextBatchWatermarkMs":0}'
        del store.files[f"stateful/commits/.{batch}.crc"]
    assert not readable(store, "stateful").state_survives_two_writers


@pytest.mark.parametrize("batch", [0, 1, 2, 41])
def test_a_seed_cut_after_any_file_never_looks_like_a_checkpoint_that_ran(batch: int) -> None:
    whole = MemoryStore()
    generation = Generation(1, Epoch(1))
    write_seed(whole, CODEC, generation, BatchNumber(batch), START, 2)
    paths = list(whole.files)
    for count in range(len(paths)):
        cut = MemoryStore()
        cut.files = {path: whole.files[path] for path in paths[:count]}
        found = read_generation(cut, CODEC, generation.folder)
        assert not isinstance(found, Readable), f"{paths[:count]} reads as {found}"
        assert not found.has_run, f"{paths[:count]} reads as {found}"


@pytest.mark.parametrize("batch", [0, 1, 2, 41])
def test_a_whole_seed_reads_as_the_empty_batch_it_is(batch: int) -> None:
    store = MemoryStore()
    generation = Generation(1, Epoch(1))
    write_seed(store, CODEC, generation, BatchNumber(batch), START, 2)
    found = readable(store, generation.folder)
    assert (found.planned, found.checkpointed, found.planned_end) == (batch, batch or None, START)
    assert not found.has_run
