"""Which topic patterns are taken, what is said of others, and what matching one may cost."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.schema.name_pattern import READ_ALIKE, NamePattern, selects

READ_DIFFERENTLY = {
    "a backreference": r"(a)\1",
    "a named backreference": r"(?<x>a)\k<x>",
    "a named group": "(?<x>a)",
    "a named group of Python": "(?P<x>a)",
    "lookahead": "(?=a)a",
    "negative lookahead": "(?!__).*",
    "lookbehind": "a(?<=a)",
    "an atomic group": "(?>a|ab)c",
    "a possessive quantifier": "a++b",
    "a possessive count": "a{1,2}+b",
    "a flag": "(?i)orders",
    "a flag of a group": "(?i:orders)",
    "a comment": "(?#x)a",
    "the end as Java writes it": r"orders\Z",
    "the end as RE2 writes it": r"orders\z",
    "the beginning": r"\Aorders",
    "a word boundary": r"\borders",
    "white space of Java's": r"\h",
    "a line break": r"\R",
    "quoted text": r"\Qa.b\E",
    "a POSIX class": "[[:alpha:]]+",
    "an intersection": "[a-z&&[^b]]",
    "a union": "[a[bc]]",
    "a Unicode class": r"\p{L}+",
    "a Unicode class of one letter": r"\pL",
    "a byte": r"\C",
    "an octal number": r"\0101",
    "a hexadecimal number": r"\x41",
    "a control character": r"\cA",
    "a letter with an accent": "é",
    "a space": "a b",
    "a bracket first in a class": "[]a]",
    "a hyphen after a class": r"[\w-.]",
    "a quantifier of nothing": "*a",
    "a quantified anchor": "^*a",
    "two quantifiers": "a**",
    "two counts": "a{2}{3}",
    "a count without a beginning": "a{,3}",
    "a brace that counts nothing": "{a}",
    "a backslash at the end": "a\\",
    "nothing but a line break": "\n",
}

NO_PATTERN = {
    "a group that is not closed": "orders-(",
    "a group that was not opened": "orders-)",
    "bounds of a class in the wrong order": "[z-a]",
    "bounds of a count in the wrong order": "a{5,2}",
    "a count too large": "(a{100}){100}",
    "a program too large": "(.{1,9}){99}(.{1,9}){99}(.{1,9}){99}(.{1,9}){99}",
}

CHECK: TypeAdapter[str] = TypeAdapter(NamePattern)


@pytest.mark.parametrize("pattern", READ_DIFFERENTLY.values(), ids=READ_DIFFERENTLY.keys())
def test_what_java_and_re2_read_differently_is_refused_from_where_it_begins(pattern: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CHECK.validate_python(pattern)
    (error,) = caught.value.errors()
    assert error["msg"].startswith(f"Value error, {pattern!r} cannot be used from ")
    assert READ_ALIKE.sentence in error["msg"]


@pytest.mark.parametrize("pattern", NO_PATTERN.values(), ids=NO_PATTERN.keys())
def test_what_is_no_pattern_or_too_large_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"is not a regular expression \(.+\); correct or shorten it"):
        CHECK.validate_python(pattern)


@pytest.mark.parametrize("pattern", ["(?:^|-){2}a", "(a|b$)", "((c)d|(^a))", r"\(a(^b)"])
def test_an_anchor_in_a_group_is_refused_as_java_reads_it_differently_where_the_group_repeats(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"has \^ or \$ within parentheses, .+ match the whole name anyway"):
        CHECK.validate_python(pattern)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("orders", ["orders"], ["orders-eu", "old-orders", "Orders"]),
        ("orders|returns", ["orders", "returns"], ["orders-returns", "ordersx"]),
        (r"orders\.(eu|us)-\d{1,2}", ["orders.eu-1", "orders.us-22"], ["orders-eu-1", "orders.eu-123"]),
        ("^[a-z0-9_.-]+$", ["a.b-c_1"], ["A"]),
        ("^orders$|^returns$", ["orders", "returns"], ["orders-returns"]),
        (r"(a)[^b\(]?$|\(^b|[\^\)]?(c)", ["a", "ac", "c"], ["ab", "b"]),
        (r"[^_].*?", ["orders"], ["_schemas"]),
        (r"[\w.-]*", ["a.b", "B-2"], []),
    ],
)
def test_a_pattern_selects_by_the_whole_name(pattern: str, taken: list[str], left: list[str]) -> None:
    CHECK.validate_python(pattern)
    assert [name for name in taken + left if selects(pattern, name)] == taken


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", ["([a-z]+)+_", "(a|aa)+_", "(.*a){12}_", "(([a-z])+.)+[A-Z]([a-z])+"])
def test_a_pattern_that_would_backtrack_for_ever_is_matched_all_the_same(pattern: str) -> None:
    """Without a limit on time in the code, the name is so long that a backtracking matcher does not end within a lifetime."""
    source = KafkaSource.model_validate({"bootstrapServers": "k:1", "topicPattern": pattern})
    name = 248 * "a" + "!"
    assert source.selected({name: range(1)}) == (frozenset(), ())
    assert not source.selection().reads_origin(name)
