"""A long run that is stopped continues with what is left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.simulation.long import CHUNK, Progress, ProgressFile
from tests.simulation.search import Chunk, Found


def chunk(first: int, *wrong: Found) -> Chunk:
    return Chunk(first, first + CHUNK, wrong, Counter({"Resume": 3}), Counter({"kill driver": 2}), 1)


def progress(commit: str = "abc") -> Progress:
    return Progress(commit, 0, 3 * CHUNK)


def test_what_the_same_commit_has_run_is_not_run_again_and_what_it_found_is_told(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.jsonl")
    file.append("abc", chunk(CHUNK, Found(207, "seed 207: lost")), 2.5)
    going_on = progress()
    file.read_into(going_on)
    assert list(going_on.left()) == [(0, CHUNK), (2 * CHUNK, 3 * CHUNK)]
    assert (going_on.seeds, going_on.seconds, going_on.halted) == (CHUNK, 2.5, 1)
    page = going_on.report()
    assert "Not complete" in page
    assert "- 207: seed 207: lost" in page
    assert "of commit abc" in page


def test_what_another_commit_has_run_does_not_count(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.jsonl")
    file.append("abc", chunk(0), 1.0)
    other = progress("def")
    file.read_into(other)
    assert other.seeds == 0


def test_where_any_commit_counts_the_report_says_which_has_run_how_many(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.jsonl")
    file.append("abc", chunk(0), 1.0)
    file.append("abc", chunk(CHUNK), 1.0)
    other = progress("def")
    file.read_into(other, any_commit=True)
    assert list(other.left()) == [(2 * CHUNK, 3 * CHUNK)]
    other.add(chunk(2 * CHUNK))
    assert f"2 commits, abc ({2 * CHUNK} seeds), def ({CHUNK} seeds)" in other.report()


def test_a_chunk_is_counted_once_and_a_line_that_was_cut_short_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = ProgressFile(path)
    file.append("abc", chunk(0), 1.0)
    file.append("abc", chunk(0), 1.0)
    with path.open("a") as lines:
        lines.write('{"commit": "abc", "first": 200, "un')
    going_on = progress()
    file.read_into(going_on)
    assert going_on.done == {0}
    assert going_on.seeds == CHUNK


def test_a_run_that_is_complete_says_so() -> None:
    whole = progress()
    for first in (2 * CHUNK, 0, CHUNK):
        whole.add(chunk(first))
    assert list(whole.left()) == []
    assert "Not complete" not in whole.report()
    assert "**Violations: 0.**" in whole.report()
