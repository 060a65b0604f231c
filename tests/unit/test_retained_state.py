"""What a generation retains of a batch's state is found whole or not at all, and copied so that no part of it is published."""

from __future__ import annotations

import pytest

from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.retained import NotRetained, Retained, copy_retained, find_retained
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from tests.simulation.files import MemoryStore
from tests.state_folders import StateFolder

FIRST, SECOND = Generation(1, Epoch(1)), Generation(2, Epoch(7))
KINDS = ["in memory", "zips", "zips with ids", "changelogs", "changelogs with ids"]
LAST, FOURTH = 6, BatchNumber(4)
JOIN = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue")


class Died(Exception):
    """The process that copied is gone."""


def made(kind: str, stores: tuple[str, ...] = ("default",)) -> StateFolder:
    folder = StateFolder(FIRST.folder, kind, stores)
    folder.batches(LAST)
    return folder


def found(folder: StateFolder, batch: int = FOURTH) -> Retained | NotRetained:
    return find_retained(folder.store, CODEC, FIRST, BatchNumber(batch))


def why(folder: StateFolder, batch: int = FOURTH) -> str:
    missing = found(folder, batch)
    assert isinstance(missing, NotRetained), missing
    return missing.message.removeprefix(f"{FIRST.folder}/")


STATE_OF_4 = {
    "in memory": ["state/0/1/3.snapshot", "state/0/1/4.delta", "state/0/1/5.delta"],
    "zips": ["state/0/1/5.zip", "state/0/1/SSTs/000005-id-5-1-default.sst"],
    "zips with ids": [
        "state/0/1/5_id-5-1-default.zip",
        "state/0/1/5_id-5-1-default.zip.crc",
        "state/0/1/SSTs/000005-id-5-1-default.sst",
    ],
    "changelogs": [
        "state/0/1/3.zip",
        "state/0/1/4.changelog",
        "state/0/1/5.changelog",
        "state/0/1/SSTs/000003-id-3-1-default.sst",
    ],
    "changelogs with ids": [
        "state/0/1/3_id-3-1-default.zip",
        "state/0/1/3_id-3-1-default.zip.crc",
        "state/0/1/4_id-4-1-default.changelog",
        "state/0/1/5_id-5-1-default.changelog",
        "state/0/1/SSTs/000003-id-3-1-default.sst",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_files_that_a_restart_after_the_batch_reads_are_found(kind: str) -> None:
    retained = found(made(kind))
    assert isinstance(retained, Retained)
    assert [path for path in retained.files if path.startswith("state/0/1/")] == STATE_OF_4[kind]
    others = [path for path in retained.files if not path.startswith(("state/0/1/", "state/0/0/"))]
    assert others == [
        "state/0/_metadata/metadata", "sources/0/0", "metadata", "commits/4", "offsets/3", "offsets/4"
    ]  # fmt: skip
    assert "state/0/0/_metadata/schema" in retained.files
    key = Partition("orders", 0)
    assert (retained.start, retained.end) == (Positions({key: 30}), Positions({key: 40}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_latest_and_the_first_batch_with_records_are_retained_too(kind: str) -> None:
    for batch in (1, LAST):
        assert isinstance(found(made(kind), batch), Retained)


def test_every_store_of_an_operator_is_found() -> None:
    retained = found(made("zips with ids", JOIN))
    assert isinstance(retained, Retained)
    assert all(f"state/0/1/{name}/5_id-5-1-{name}.zip" in retained.files for name in JOIN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_retained_only_if_none_of_its_files_is_missing(kind: str) -> None:
    """Whichever file goes, but those that describe a store or hold checksums: never is a part taken for the whole."""
    retained = found(made(kind))
    assert isinstance(retained, Retained)
    needed = [path for path in retained.files if not path.startswith("sources/") and "schema" not in path]
    for path in needed:
        folder = made(kind)
        folder.remove(path)
        after = found(folder)
        if path.endswith(".crc"):
            assert isinstance(after, Retained)
        elif path.endswith("/3.snapshot"):
            assert isinstance(after, Retained)
            assert path.replace("snapshot", "delta") in after.files, (
                "what changed is read instead, from the first version on"
            )
        else:
            assert isinstance(after, NotRetained), path


def test_what_is_missing_is_named_with_the_oldest_batch_whose_state_is_there() -> None:
    folder = made("zips")
    for version in range(1, 6):
        folder.remove(f"state/0/1/{version}.zip")
    missing = found(folder)
    assert missing == NotRetained(f"{FIRST.folder}/state/0/1 has no version 5, which batch 4 made", BatchNumber(5))


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("offsets/4", b"", "offsets/4 is not usable: it has no bytes"),
        ("commits/4", b"v9\n{}", "commits/4 is not usable: its commit log version is v9"),
        ("state/0/_metadata/metadata", b"v2\n{}", "state/0/_metadata/metadata is not usable: its first line is b'v2'"),
        ("state/0/1/5.zip", b"PK torn", "state/0/1/5.zip is not usable: it is not a snapshot of RocksDB"),
        (
            "state/0/1/SSTs/000005-id-5-1-default.sst",
            b"short",
            "state/0/1/SSTs/000005-id-5-1-default.sst has 5 bytes; state/0/1/5.zip needs it with 20 bytes",
        ),
    ],
)
def test_a_file_that_is_damaged_is_named(path: str, content: bytes, told: str) -> None:
    folder = made("zips")
    folder.write(path, content)
    assert why(folder).startswith(told)


def test_state_that_another_try_of_the_batch_made_is_not_taken() -> None:
    folder = made("zips with ids")
    content = folder.store.files[f"{FIRST.folder}/state/0/1/5_id-5-1-default.zip"]
    folder.write("state/0/1/5_of-a-zombie.zip", content)
    retained = found(folder)
    assert isinstance(retained, Retained)
    assert not any("zombie" in path for path in retained.files)
    folder.remove("state/0/1/5_id-5-1-default.zip")
    assert why(folder) == "state/0/1 has no version 5, which batch 4 made"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_reads_as_the_batch_that_landed_and_leaves_the_old_generation_alone(kind: str) -> None:
    folder = made(kind)
    before = dict(folder.store.files)
    copy_retained(folder.store, CODEC, FIRST, SECOND, FOURTH)
    state = read_generation(folder.store, CODEC, SECOND.folder)
    assert isinstance(state, Readable)
    assert (state.planned, state.checkpointed, state.stateful, state.has_run) == (4, 4, True, False)
    assert {path: folder.store.files[path] for path in before} == before
    assert not [path for path in folder.store.files if path.startswith(SECOND.folder) and "/6" in path]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_cut_short_anywhere_is_no_checkpoint_and_is_completed_by_doing_it_again(kind: str) -> None:
    whole = made(kind)
    copy_retained(whole.store, CODEC, FIRST, SECOND, FOURTH)
    retained = found(whole)
    assert isinstance(retained, Retained)
    for count in range(len(retained.files)):
        left = iter(range(count))

        def step(_: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload] # an iterator
                raise Died

        cut = MemoryStore(step)
        cut.files.update(made(kind).store.files)
        with pytest.raises(Died):
            copy_retained(cut, CODEC, FIRST, SECOND, FOURTH)
        assert not isinstance(read_generation(cut, CODEC, SECOND.folder), Readable), (
            f"cut before {retained.files[count]}"
        )
        again = MemoryStore()
        again.files = cut.files
        copy_retained(again, CODEC, FIRST, SECOND, FOURTH)
        assert again.files == whole.store.files


def test_what_goes_away_while_it_is_copied_is_no_copy() -> None:
    folder = made("zips")

    def step(_: str) -> None:
        folder.store.files.pop(f"{FIRST.folder}/state/0/1/5.zip", None)

    store = MemoryStore(step)
    store.files = folder.store.files
    with pytest.raises(StoreUnreachable, match=r"state/0/1/5.zip went away while it was copied"):
        copy_retained(store, CODEC, FIRST, SECOND, FOURTH)


def test_a_checkpoint_whose_state_is_gone_retains_nothing_of_a_batch() -> None:
    """The list of the source, sources/0/0, is no folder of an operator."""
    folder = made("in memory")
    for path in [path.removeprefix(f"{FIRST.folder}/") for path in folder.store.files if "/state/" in path]:
        folder.remove(path)
    assert why(folder) == "state holds no operator"
