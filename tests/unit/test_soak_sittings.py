"""The kills of a soak are done in several sittings, and what is added up is what was compared."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from scripts.generated import ROOT
from tests import soak
from tests.soak_sittings import KINDS, OfMode, Sitting, Sittings, SittingsFile


def sitting(commit: str = "abc", seed: int = 7, kills: int = 3, wrong: str = "") -> Sitting:
    batch = OfMode(Counter({"driver": kills}), 100, 5, Counter({"Resume": 4}), Counter({"land.fenced": kills, "": 1}))
    partition = OfMode(Counter({"driver": 1, "loop": 1}), 50, 2, Counter({"SkipLanded": 1}), Counter({"": 1}))
    return Sitting(commit, seed, 60.0, {"Batch": batch, "Partition": partition}, lost_batches=2, wrong=wrong)


def test_the_sittings_of_a_commit_are_added_up_and_what_is_left_is_known(tmp_path: Path) -> None:
    file = SittingsFile(tmp_path / "soak.progress.jsonl")
    file.append(sitting(seed=7))
    file.append(sitting(seed=8, kills=10))
    sittings = Sittings("abc", 20)
    file.read_into(sittings)
    assert (sittings.kills, sittings.left) == (17, 3)
    page = sittings.report()
    assert "17 kills in 2 sittings and 2 minutes, of commit abc." in page
    assert "**Not complete**: 20 kills are asked for." in page
    assert "| driver | 13 | 2 |" in page
    assert "| loop | 0 | 2 |" in page
    assert "that landed again: 4." in page
    assert "- commit: Batch: 200 ids, 0 lost, 0 doubled; 10 attempts. Resume 8." in page
    assert "killed at, or at random after: land.fenced 13, before a batch 2." in page
    assert "| abc | 8 | 12 | 150 |" in page


def test_the_next_sitting_has_a_seed_that_has_not_run() -> None:
    sittings = Sittings("abc", 20, [sitting(seed=7), sitting(seed=8, wrong="2 ids are doubled")])
    assert sittings.next_seed(7) == 9
    assert sittings.next_seed(5) == 5


def test_a_sitting_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = SittingsFile(tmp_path / "soak.progress.jsonl")
    file.append(sitting())
    sittings = Sittings("abc", 5)
    file.read_into(sittings)
    assert sittings.found == [sitting()]
    assert "Not complete" not in sittings.report()


def test_what_another_commit_has_done_does_not_count_unless_that_is_asked_for(tmp_path: Path) -> None:
    file = SittingsFile(tmp_path / "soak.progress.jsonl")
    file.append(sitting("abc"))
    alone, together = Sittings("def", 20), Sittings("def", 20)
    file.read_into(alone)
    assert (alone.kills, alone.left) == (0, 20)
    file.append(sitting("def", seed=9, kills=1))
    file.read_into(together, any_commit=True)
    assert together.kills == 8
    assert "2 commits, abc (5 kills), def (3 kills)" in together.report()


def test_where_only_another_commit_has_run_the_report_names_that_one(tmp_path: Path) -> None:
    file = SittingsFile(tmp_path / "soak.progress.jsonl")
    file.append(sitting("abc"))
    sittings = Sittings("def", 5)
    file.read_into(sittings, any_commit=True)
    assert "of abc (5 kills)." in sittings.report()


def test_a_sitting_that_went_wrong_counts_no_kill_and_is_told_for_good(tmp_path: Path) -> None:
    file = SittingsFile(tmp_path / "soak.progress.jsonl")
    file.append(sitting(wrong="2 ids are doubled"))
    sittings = Sittings("abc", 20)
    file.read_into(sittings)
    assert (sittings.kills, len(sittings.wrong)) == (0, 1)
    page = sittings.report()
    assert "**Sittings that went wrong: 1.**" in page
    assert "- seed 7, commit abc: 2 ids are doubled" in page
    assert "0 lost" not in page


def test_the_report_says_what_has_not_been_struck_yet_in_a_mode() -> None:
    def with_kinds(seed: int, batch: tuple[str, ...], partition: tuple[str, ...]) -> Sitting:
        kinds = {"Batch": Counter(batch), "Partition": Counter(partition)}
        modes = {mode: OfMode(found, 100, 5, Counter(), Counter()) for mode, found in kinds.items()}
        return Sitting("abc", seed, 60.0, modes)

    sittings = Sittings("abc", 20, [with_kinds(7, KINDS[2:], KINDS[1:])])
    assert (
        f"yet**: in commit: Batch, “{KINDS[0]}”, “{KINDS[1]}”; in commit: Partition, “{KINDS[0]}”." in sittings.report()
    )
    sittings.found.append(with_kinds(8, KINDS[:2], KINDS[:1]))
    assert "Not struck yet" not in sittings.report()


def test_what_continues_on_another_machine_is_no_file_that_git_ignores(tmp_path: Path) -> None:
    sit = mock.Mock(return_value=sitting(kills=8))
    with mock.patch.object(soak, "_sit", sit), mock.patch.object(soak, "commit_of", lambda *paths: "abc"):
        assert soak.main(["--kills", "8", "--seed", "3", "--report", str(tmp_path / "soak.md")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"soak.md", "soak.sittings.jsonl"}
    ignored = subprocess.run(
        ["git", "check-ignore", "docs/reports/soak.sittings.jsonl", "docs/reports/simulation.progress.json"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ignored.stdout == ""


def test_a_line_that_was_cut_short_counts_for_nothing_and_takes_nothing_with_it(tmp_path: Path) -> None:
    path = tmp_path / "soak.progress.jsonl"
    file = SittingsFile(path)
    file.append(sitting(seed=7))
    with path.open("a") as lines:
        lines.write('{"commit": "abc", "se')
    file.append(sitting(seed=9))
    sittings = Sittings("abc", 20)
    file.read_into(sittings)
    assert [found.seed for found in sittings.found] == [7, 9]


def test_without_a_file_nothing_is_kept() -> None:
    file, sittings = SittingsFile(None), Sittings("abc", 20)
    file.append(sitting())
    file.read_into(sittings)
    assert sittings.found == []


def test_a_soak_that_is_stopped_continues_with_the_same_command(tmp_path: Path) -> None:
    begun: list[tuple[int, int]] = []

    def sit(kills: int, seed: int, commit: str) -> Sitting:
        begun.append((kills, seed))
        if len(begun) == 2:
            raise KeyboardInterrupt
        done = OfMode(Counter({"driver": kills}), 100, 5, Counter(), Counter())
        return Sitting(commit, seed, 60.0, {"Batch": done})

    command = ["--kills", "8", "--sitting", "5", "--seed", "3", "--report", str(tmp_path / "soak.md")]
    with mock.patch.object(soak, "_sit", sit), mock.patch.object(soak, "commit_of", lambda *paths: "abc"):
        assert soak.main(command) == 1, "it was stopped, and is not complete"
        assert "**Not complete**: 8 kills are asked for." in (tmp_path / "soak.md").read_text()
        assert soak.main(command) == 0
        assert soak.main(command) == 0, "nothing is left to be done"
    assert begun == [(5, 3), (3, 4), (3, 4)]
    assert "8 kills in 2 sittings" in (tmp_path / "soak.md").read_text()


def test_a_sitting_that_goes_wrong_is_the_last_one_until_somebody_has_looked_at_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sit(kills: int, seed: int, commit: str) -> Sitting:
        return Sitting(commit, seed, 60.0, {}, wrong="2 ids are doubled")

    with mock.patch.object(soak, "_sit", sit), mock.patch.object(soak, "commit_of", lambda *paths: "abc"):
        assert soak.main(["--kills", "8", "--seed", "3", "--progress", str(tmp_path / "soak.jsonl")]) == 1
    assert capsys.readouterr().out.count("2 ids are doubled") == 1
