"""RE2, by which the operator selects topics, held against java.util.regex, by which Spark does: each is the other's oracle.

Patterns are drawn by a seed: from the grammar that is accepted, and from pieces of both syntaxes thrown together. Whatever is
accepted has to compile in Java and to select the same names. PATTERN_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
import re2
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from exactlyonce.schema.name_pattern import PatternUnreadable, selects

SEED = int(os.environ.get("PATTERN_SEED", "1"))
GROUPS = 2  # within each other; with more, Java backtracks for minutes over some patterns
NAME_CHARACTERS = "aabbcAZ019._-"
PIECES = (
    "a", "b", "c", "A", "Z", "0", "1", "9", ".", "_", "-", "^", "$", "|", "(", ")", "(?:", "[", "]", "[^", "*", "+", "?", "{2}",
    "{1,}", "{0,2}", "{,2}", "{", "}", "\\", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G",
    "\\h", "\\H", "\\v", "\\R", "\\X", "\\Q", "\\E", "\\1", "\\0", "\\01", "\\x61", "\\x{61}", "\\u0061", "\\a", "\\e", "\\cA",
    "\\k<x>", "\\pL", "\\p{Lu}", "\\p{Alpha}", "\\p{L}", "\\PL", "\\C", "[[:alpha:]]", "[:alpha:]", "&&", "[a&&b]", "[a[b]]",
    "(?i)", "(?s)", "(?x)", "(?U)", "(?i:", "(?-i)", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<x>", "(?P<x>", "#", " ", "\n",
    "\\.", "\\-", "\\_", "\\[", "\\]", "\\^", "\\$", "\\/", "\\<", "\\>", "\\'", "\\\"",
    "\\~", "\\{", "\\&", "\\ ", "a-c", "Z-a", "é",
)  # fmt: skip


class Java:
    """A virtual machine that does what Spark's SubscribePatternStrategy does with a pattern."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm: Any = gateway.jvm

    def selected(self, pattern: str, names: Sequence[str]) -> set[str]:
        """Return the names that Spark takes: those in which the pattern is found."""
        regex, joining = self._jvm.java.util.regex.Pattern, self._jvm.java.util.stream.Collectors.joining(" ")
        listed = regex.compile(" ").splitAsStream(" ".join(names))
        return set(listed.filter(regex.compile(pattern).asPredicate()).collect(joining).split())


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(jar), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield Java(gateway)
    gateway.shutdown()


def names(dice: random.Random) -> list[str]:
    """Return names of topics that patterns over the same few characters often match."""
    return ["".join(dice.choices(NAME_CHARACTERS, k=dice.randint(1, 7))) for _ in range(40)]


def anchored(pattern: str) -> str:
    """Return a pattern of the whole name for java.util.regex, which looks for a part of it."""
    return f"^(?:{pattern})$"


def by_grammar(dice: random.Random, depth: int = GROUPS) -> str:
    """Return a pattern of the accepted syntax; anchors only outside of groups."""
    return "|".join(_sequence(dice, depth, anchored=depth == GROUPS) for _ in range(dice.choice((1, 1, 1, 2, 3))))


def _sequence(dice: random.Random, depth: int, *, anchored: bool) -> str:
    begun, ended = (dice.choices(("", anchor), (9, anchored))[0] for anchor in "^$")
    return begun + "".join(_quantified(dice, depth) for _ in range(dice.randint(0, 3))) + ended


def _quantified(dice: random.Random, depth: int) -> str:
    quantifier = dice.choice(("", "", "", "*", "+", "?", "{2}", "{0}", "{1,}", "{0,2}", "{1,3}"))
    lazy = dice.choice(("", "", "?")) if quantifier else ""
    if depth and dice.random() < 0.3:
        return f"{dice.choice(('(', '(?:'))}{by_grammar(dice, depth - 1)}){quantifier}{lazy}"
    kinds = (r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", r"\.", r"\-", r"\_", "-", "_")
    return dice.choice((dice.choice("abcAZ019"), dice.choice(kinds), _class(dice))) + quantifier + lazy


def _class(dice: random.Random) -> str:
    inside = (r"\d", r"\w", r"\S", "a", "b-c", "a-z", "A-Z", "0-9", ".", "_", r"\-", r"\]", r"\^", r"\.-_", r"\+")
    items = "".join(dice.choices(inside, k=dice.randint(1, 3)))
    return f"[{dice.choice(('', '', '^'))}{dice.choice(('', '', '-'))}{items}{dice.choice(('', '', '-'))}]"


def thrown_together(dice: random.Random) -> str:
    """Return a text that looks like a pattern."""
    return "".join(dice.choices(PIECES, k=dice.randint(1, 5)))


def is_readable(pattern: str) -> bool:
    """Whether the product takes a pattern."""
    try:
        selects(pattern, "orders")
    except PatternUnreadable:
        return False
    return True


def test_java_selects_the_same_topics_by_every_pattern_of_the_accepted_syntax(java: Java) -> None:
    dice = random.Random(f"{SEED} grammar")
    outcomes = set()
    for _ in range(3000):
        pattern, topics = by_grammar(dice), names(dice)
        assert is_readable(pattern), pattern
        ours = {topic for topic in topics if selects(pattern, topic)}
        assert java.selected(anchored(pattern), topics) == ours, f"{pattern!r} (PATTERN_SEED={SEED})"
        outcomes.add((bool(ours), ours == set(topics)))
    assert outcomes == {(False, False), (True, False), (True, True)}, "some match nothing, some a part, some all"


def test_java_reads_whatever_is_accepted_of_both_syntaxes_thrown_together_as_re2_does(java: Java) -> None:
    dice = random.Random(f"{SEED} thrown together")
    accepted = 0
    for _ in range(40_000):
        pattern = thrown_together(dice)
        if not is_readable(pattern):
            continue
        accepted += 1
        topics = names(dice)
        ours = {topic for topic in topics if selects(pattern, topic)}
        assert java.selected(anchored(pattern), topics) == ours, f"{pattern!r} (PATTERN_SEED={SEED})"
    assert accepted > 1000


def test_java_leaves_a_repeated_group_after_an_empty_turn_so_that_anchors_in_groups_are_refused(java: Java) -> None:
    pattern, topics = "(?:^|-){2}a", ["-a", "a"]
    assert [topic for topic in topics if re2.fullmatch(pattern, topic)] == ["-a", "a"]
    assert java.selected(anchored(pattern), topics) == {"a"}
    assert not is_readable(pattern)
