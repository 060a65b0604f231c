r"""Names by pattern: the part of regular expressions that RE2 and Java read alike, matched in linear time. docs/adr/0013.

Names are matched with RE2: time and memory are bounded whatever a tenant writes, and the interpreter's lock is held for
milliseconds at most. Who writes patterns knows them from java.util.regex, as in Spark's subscribePattern. So a pattern may
use only what the two read alike: `SYNTAX` says what that is, as one regular expression that CEL, RE2 and Python read.
What no regular expression can say of another one is checked beside it: that no anchor stands in a group, here; that
parentheses close, that bounds are in order, and the size of what is compiled, by RE2.

tests/integration/test_topic_patterns.py holds RE2 against a real java.util.regex. Performs no I/O.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, Field

from exactlyonce.schema.constraints import Rule, cel_text

MOST_CHARACTERS = 1000
_MOST_MEMORY = 128 * 1024
"""Bytes that RE2 may use for one pattern: a larger budget lets a hostile pattern build more states for each name."""
_KEPT = 128

_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_KIND = r"\\[dDsSwW]"
_SINGLE = rf"(?:[0-9A-Za-z_.]|\\{_PUNCTUATION})"
_CLASS = rf"\[\^?-?(?:{_KIND}|{_SINGLE}(?:-{_SINGLE})?)+-?\]"
_ATOM = rf"(?:[0-9A-Za-z_.-]|\\{_PUNCTUATION}|{_KIND}|{_CLASS}|\))"
_QUANTIFIER = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??"
SYNTAX = rf"(?:{_ATOM}(?:{_QUANTIFIER})?|\((?:\?:)?|[|^$])"
"""One token of a pattern: an atom with its quantifier, the start of a group, an alternative, or an anchor."""

_TOKEN, _READABLE = re.compile(SYNTAX, re.ASCII), re.compile(f"{SYNTAX}*", re.ASCII)
_SENTENCE = (
    r"use letters, digits, _ and -, a dot for any character, a backslash before other punctuation, \d, \w and \s, classes "
    r"such as [a-z0-9_-], groups with ( or (?:, |, ^, $, and *, +, ? or {2,5} after what is repeated; lookaround, "
    "backreferences, flags, possessive quantifiers, POSIX and Unicode classes are read differently by Java and RE2"
)


class PatternUnreadable(ValueError):
    """A text is not a pattern that both sides read alike."""


def _told(pattern: Any) -> str:
    begun = _READABLE.match(pattern)
    assert begun is not None, "it matches the empty text"
    return f"{pattern!r} cannot be used from {pattern[begun.end() :]!r} on; {_SENTENCE}"


READ_ALIKE = Rule(
    f"self.matches({cel_text(f'^{SYNTAX}*$')})",
    lambda pattern: _READABLE.fullmatch(pattern) is not None,
    _SENTENCE,
    told=_told,
)


def selects(pattern: str, name: str) -> bool:
    """Whether `pattern` matches all of a name; linear in the name's length.

    Raises:
        PatternUnreadable: if it is not a pattern that Java and RE2 read alike.
    """
    return _compiled(pattern).fullmatch(name) is not None


@functools.lru_cache(maxsize=_KEPT)
def _compiled(pattern: str) -> Any:
    """Return RE2's form of a pattern; the cache bounds the memory of all patterns together."""
    problem = READ_ALIKE.broken_by(pattern)
    if problem is not None:
        raise PatternUnreadable(problem)
    if _anchored_in_a_group(pattern):
        raise PatternUnreadable(
            f"{pattern!r} has ^ or $ within parentheses, which Java and RE2 read differently; leave them out: the pattern "
            "has to match the whole name anyway"
        )
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.never_capture = True
    options.log_errors = False  # it would write to stderr past the structured log, once for each name
    try:
        return re2.compile(pattern, options)
    except re2.error as problem_of_re2:
        (said,) = problem_of_re2.args
        raise PatternUnreadable(
            f"{pattern!r} is not a regular expression ({said.decode(errors='replace')}); correct or shorten it"
        ) from None


def _anchored_in_a_group(pattern: str) -> bool:
    """Whether `^` or `$` stands within parentheses.

    Java leaves a repeated group as soon as one turn of it was empty, so that it does not find "-a" by (?:^|-){2}a; RE2 does.
    Without anchors it makes no difference which of the turns is the empty one.
    """
    depth = 0
    for token in _TOKEN.findall(pattern):
        depth += token.startswith("(") - token.startswith(")")
        if depth > 0 and token in ("^", "$"):
            return True
    return False


def _checked(pattern: str) -> str:
    _compiled(pattern)
    return pattern


NamePattern = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS), READ_ALIKE, AfterValidator(_checked)]
