"""A long run that is stopped continues with what is left, there or on another machine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from scripts.code_version import commit_of
from tests.simulation import long
from tests.simulation.long_progress import CHUNK, CompactFile, Progress, ProgressFile, Ran, merged
from tests.simulation.search import Chunk, Found
from tests.simulation.seeds_that_went_wrong import SEEDS_THAT_WENT_WRONG


def span(first: int, until: int, *wrong: Found, commit: str = "abc", seconds: float = 1.0) -> Ran:
    return Ran(commit, Chunk(first, until, wrong, Counter({"Resume": 3}), Counter({"kill driver": 2}), 1), seconds)


def ran(first: int, *wrong: Found, commit: str = "abc", seconds: float = 1.0) -> Ran:
    return span(first, first + CHUNK, *wrong, commit=commit, seconds=seconds)


def progress(commit: str = "abc", any_commit: bool = False) -> Progress:
    return Progress(commit, 0, 3 * CHUNK, any_commit)


def test_what_the_same_commit_has_run_is_not_run_again_and_what_it_found_is_told(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.jsonl")
    file.append(ran(CHUNK, Found(207, "seed 207: lost"), seconds=2.5))
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
    file.append(ran(0))
    other = progress("def")
    file.read_into(other)
    assert other.seeds == 0


def test_where_any_commit_counts_the_report_says_which_has_run_how_many(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.jsonl")
    file.append(ran(0))
    file.append(ran(CHUNK))
    other = progress("def", any_commit=True)
    file.read_into(other)
    assert f"of commit abc ({2 * CHUNK} seeds), 20" in other.report()
    assert list(other.left()) == [(2 * CHUNK, 3 * CHUNK)]
    other.add(ran(2 * CHUNK, commit="def"))
    assert f"2 commits, abc ({2 * CHUNK} seeds), def ({CHUNK} seeds)" in other.report()


def test_a_chunk_is_counted_once_and_a_line_that_was_cut_short_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    file = ProgressFile(path)
    file.append(ran(0))
    file.append(ran(0))
    with path.open("a") as lines:
        lines.write('{"commit": "abc", "first": 200, "un')
    going_on = progress()
    file.read_into(going_on)
    assert list(going_on.left()) == [(CHUNK, 2 * CHUNK), (2 * CHUNK, 3 * CHUNK)]
    assert going_on.seeds == CHUNK


def test_a_run_that_is_complete_says_so() -> None:
    whole = progress()
    for first in (2 * CHUNK, 0, CHUNK):
        whole.add(ran(first))
    assert list(whole.left()) == []
    assert "Not complete" not in whole.report()
    assert "**Violations: 0.**" in whole.report()


def test_seeds_that_follow_each_other_and_that_one_commit_has_run_become_one_entry_with_their_sums() -> None:
    found = Found(CHUNK + 7, "seed 207: lost\nits trace")
    entries = merged([ran(3 * CHUNK), ran(CHUNK, found), ran(0, seconds=2.0), ran(2 * CHUNK, commit="def"), ran(0)])
    whole = Chunk(0, 2 * CHUNK, (found,), Counter({"Resume": 6}), Counter({"kill driver": 4}), 2)
    assert entries == [Ran("abc", whole, 3.0), ran(3 * CHUNK), ran(2 * CHUNK, commit="def")]


def test_another_machine_continues_from_the_compact_file_and_adds_to_it(tmp_path: Path) -> None:
    compact = CompactFile(tmp_path / "simulation.progress.json")
    here = progress()
    here.add(ran(0, Found(7, "seed 7: lost\nits trace")))
    here.add(ran(CHUNK))
    compact.write(here)
    there = progress()
    compact.read_into(there)
    assert there.wrong == {7: "seed 7: lost"}, "the trace is not kept: the seed says the rest"
    assert (there.seeds, there.seconds, there.verdicts) == (2 * CHUNK, 2.0, Counter({"Resume": 6}))
    assert list(there.left()) == [(2 * CHUNK, 3 * CHUNK)]
    there.add(ran(2 * CHUNK))
    compact.write(there)
    assert len(json.loads((tmp_path / "simulation.progress.json").read_text())) == 1


def test_chunks_that_are_in_the_compact_file_count_once_and_so_does_what_overlaps_them() -> None:
    going_on = progress()
    for one in (span(50, 250), ran(0), ran(200), span(0, 50), span(250, 3 * CHUNK + 1)):
        going_on.add(one)
    assert going_on.seeds == 250, "of an entry only the sums of all its seeds are known"
    assert [*going_on.left()] == [(250, 250 + CHUNK), (250 + CHUNK, 3 * CHUNK)], "chunks begin where an entry ends"


def test_what_does_not_count_for_this_run_stays_in_the_compact_file(tmp_path: Path) -> None:
    compact = CompactFile(tmp_path / "simulation.progress.json")
    elsewhere = Progress("def", 0, CHUNK)
    elsewhere.add(ran(0))  # of another commit
    elsewhere.add(ran(5 * CHUNK, commit="def"))  # beyond what is asked for
    elsewhere.add(ran(0, commit="def"))
    compact.write(elsewhere)
    again = Progress("abc", 0, 10 * CHUNK, any_commit=True)
    compact.read_into(again)
    assert (again.seeds, again.commits) == (2 * CHUNK, Counter({"abc": CHUNK, "def": CHUNK}))


def test_report_only_runs_nothing_and_writes_the_report_and_the_compact_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "_run", lambda *_: pytest.fail("it ran seeds"))
    commit = commit_of(*long.CODE)
    lines, report = tmp_path / "elsewhere.jsonl", tmp_path / "simulation.md"
    ProgressFile(lines).append(ran(0, commit=commit))
    asked = ["--seeds", "600", "--first", "0", "--report", str(report), "--progress", str(lines), "--report-only"]
    assert long.main(asked) == 0
    assert "**Not complete**: 200 seeds were run." in report.read_text()
    told = json.loads((tmp_path / "simulation.progress.json").read_text())
    assert [(entry["commit"], entry["first"], entry["until"]) for entry in told] == [(commit, 0, CHUNK)]


def test_a_run_that_is_stopped_writes_what_it_has_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_stopped(running: Progress, file: ProgressFile) -> None:
        running.add(ran(0, commit=running.commit))
        raise KeyboardInterrupt

    monkeypatch.setattr(long, "_run", is_stopped)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    report = tmp_path / "simulation.md"
    assert long.main(["--seeds", "600", "--first", "0", "--report", str(report)]) == 1
    assert "**Not complete**: 200 seeds were run." in report.read_text()
    assert (tmp_path / "simulation.progress.json").exists()


def test_a_report_tells_the_seeds_that_are_mended_from_those_that_are_not() -> None:
    mended, open_still = SEEDS_THAT_WENT_WRONG[0], SEEDS_THAT_WENT_WRONG[0] + 1
    progress = Progress("abc", 0, mended + 2)
    found = (Found(mended, f"seed {mended}: lost"), Found(open_still, f"seed {open_still}: doubled"))
    progress.add(span(0, mended + 2, *found))
    report = progress.report()
    assert "**Violations: 2.**" in report
    assert "Mended since: 1;" in report
    assert f"- {mended} (mended): " in report
    assert f"- {open_still}: " in report
