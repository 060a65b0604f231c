"""Mutation testing changes what a test should notice, one thing at a time, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutated_code import mutants_of

FILE = Path("module.py")


def changed(source: str) -> set[str]:
    """Every mutant of a function's body."""
    text = f"def work(a, b, items):\n    {source}\n".encode()
    return {mutant.applied_to(text).decode().split("\n    ", 1)[1].rstrip("\n") for mutant in mutants_of(FILE, text)}


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("return a < b", {"return a <= b", "return None"}),
        ("return a is None", {"return a is not None", "return None"}),
        ("x = a and b", {"x = ((a) or (b))"}),
        ("x = not a", {"x = (a)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = 3", {"x = 4"}),
        ("x = True", {"x = False"}),
        ("x = b if a else 'text'", {"x = b if (not (a)) else 'text'"}),
        ("items.clear()", {"pass"}),
        ("raise ValueError(f'{a + b}')", {"pass"}),
        ("x = 'größer', a == b", {"x = 'größer', a != b"}),
    ],
)
def test_each_change_is_made_alone(source: str, mutants: set[str]) -> None:
    assert changed(source) == mutants


@pytest.mark.parametrize("source", [
    "assert a == b", "x = 'text'", "x = f'{a + 1}'", "'a docstring'", "x: 'int' = a",
    "reached('land.fenced', 7)", "self.reached('ending.seen')", "assert_never(a)",
])  # fmt: skip
def test_what_nothing_may_depend_on_is_left_alone(source: str) -> None:
    assert changed(source) == set()
