"""Tests that take minutes come first, on every worker."""

from __future__ import annotations

from tests.longest_first import longest_first

TESTS = [("a", 0.0), ("b", 30.0), ("c", 0.0), ("d", 90.0), ("e", 60.0), ("f", 0.0), ("g", 0.0)]


def test_the_longest_are_dealt_out_among_the_workers_and_the_others_keep_their_order() -> None:
    assert longest_first(TESTS, 2) == ["d", "b", "a", "c", "e", "f", "g"]


def test_one_worker_has_the_longest_first() -> None:
    assert longest_first(TESTS, 1) == ["d", "e", "b", "a", "c", "f", "g"]


def test_every_test_runs_once_however_many_workers_there_are() -> None:
    for workers in range(1, 9):
        assert sorted(longest_first(TESTS, workers)) == sorted(name for name, _ in TESTS)
