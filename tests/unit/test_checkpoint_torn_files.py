"""Every file that a restart depends on, cut or changed at every byte: it reads as whole or as a named damage."""

from __future__ import annotations

import zlib

import pytest

from exactlyonce.checkpoint.checksums import contradict
from exactlyonce.checkpoint.state import Damage, Damaged, Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from tests.checkpoints import in_memory, readable
from tests.simulation.files import MemoryStore


@pytest.mark.parametrize("state", ["planned", "offsets-version-2", "commits-version-2", "first-batch-planned"])
def test_a_file_cut_at_any_byte_is_whole_or_named(state: str) -> None:
    whole = in_memory(state)
    expected = readable(whole, state)
    for path in _files_a_restart_depends_on(state, expected):
        content = whole.files[path]
        for length in range(len(content)):
            cut = in_memory_without_checksums(whole)
            cut.files[path] = content[:length]
            found = read_generation(cut, CODEC, state)
            named = isinstance(found, Damaged) and found.damage in (Damage.FILE_EMPTY, Damage.FILE_TORN)
            assert named or found == expected, f"{path} cut to {length} bytes reads as {found}"


@pytest.mark.parametrize("state", ["planned", "first-batch-planned"])
def test_a_bit_that_flips_anywhere_is_found_by_the_checksum(state: str) -> None:
    whole = in_memory(state)
    expected = readable(whole, state)
    for path in _files_a_restart_depends_on(state, expected):
        content = whole.files[path]
        for place in range(len(content)):
            flipped = MemoryStore()
            flipped.files = {**whole.files, path: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]}
            found = read_generation(flipped, CODEC, state)
            assert isinstance(found, Damaged), f"{path} with byte {place} changed reads as {found}"
            assert found.damage is Damage.CHECKSUM_MISMATCH


@pytest.mark.parametrize("state", ["planned", "first-batch-planned"])
def test_a_file_cut_at_any_byte_under_its_checksum_is_named(state: str) -> None:
    whole = in_memory(state)
    expected = readable(whole, state)
    for path in _files_a_restart_depends_on(state, expected):
        for length in range(len(whole.files[path])):
            cut = MemoryStore()
            cut.files = {**whole.files, path: whole.files[path][:length]}
            found = read_generation(cut, CODEC, state)
            assert isinstance(found, Damaged), f"{path} cut to {length} bytes reads as {found}"
            assert found.damage in (Damage.FILE_EMPTY, Damage.CHECKSUM_MISMATCH)


def test_a_checksum_file_cut_at_any_byte_says_nothing_or_is_named() -> None:
    whole = in_memory("planned")
    expected = readable(whole, "planned")
    checksums = whole.files["planned/offsets/.3.crc"]
    for length in range(len(checksums)):
        whole.files["planned/offsets/.3.crc"] = checksums[:length]
        found = read_generation(whole, CODEC, "planned")
        named = isinstance(found, Damaged) and found.damage is Damage.CHECKSUM_MISMATCH
        assert named or found == expected, f"a checksum file of {length} bytes makes it {found}"


def in_memory_without_checksums(whole: MemoryStore) -> MemoryStore:
    store = MemoryStore()
    store.files = {path: content for path, content in whole.files.items() if not path.endswith(".crc")}
    return store


def _files_a_restart_depends_on(state: str, found: Readable) -> list[str]:
    paths = [f"{state}/metadata", f"{state}/offsets/{found.planned}"]
    paths += [f"{state}/offsets/{found.planned - 1}"] if found.planned else [f"{state}/sources/0/0"]
    return paths if found.checkpointed is None else [*paths, f"{state}/commits/{found.checkpointed}"]


@pytest.mark.parametrize(("bytes_per_checksum", "is_contradicted"), [(0, True), (1, False), (2, False)])
def test_a_checksum_file_may_have_chunks_of_any_size_but_of_none(
    bytes_per_checksum: int, is_contradicted: bool
) -> None:
    content, size = b"v1\n{}", max(1, bytes_per_checksum)
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    checksums = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
    assert contradict(b"crc\0" + bytes_per_checksum.to_bytes(4, "big") + checksums, content) is is_contradicted
