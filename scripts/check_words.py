"""Find phrases for which docs/glossary.md has a better word, wherever people read: messages, docstrings, names and pages.

`python -m scripts.check_words` names file and line, and what to write instead. A line that has to keep a phrase says so with
`words: ok` and the reason; `KEPT` has the files in which no such comment can stand.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import PurePath

from scripts.generated import ROOT

_UNIT = (
    "batch|partition|driver|stream|server|task|store|pass|topic|generation|request|broker|launch|answer|executor|"
    "second|minute|hour|day|restart|secret|key"
)
_COUNTED = (
    "records|offsets|positions|rows|requests|questions|commits|drivers|transactions?|connections?|clients?|threads?|count|core-seconds|"
    "milliseconds|dead letters|passes|answered|refused"
)
_VERB_FOLLOWS = "may|has|had|holds|takes|becomes|that|whose|of|is|was|spans|can|reads|lands|keeps|shows|ends"

INSTEAD = {
    r"(?i)(\b|_)anew(\b|_)": "again; for what was deleted and made: recreated; for a stream: starts over",
    r"\bgoing on with\b": "usable, stays in use, continues with",
    r"\bthan before drains\b": "change this number to restart the driver",
    r"\b(is|are) waited for\b": "name who waits: the stream waits for …",
    r"\bis told once a\b": "is reported as soon as",
    r"\bTrouble\b|(?i:enclosure)": "the problem itself, sandbox",
    r"\bPutOff\b|\b_?put_off\b": "BackingOff, back_off",
    r"\bdef _?(look|ask)\(|\.(look|ask)\(": "what is returned or done: view, state_of, query, request",
    rf"\b(?!Count)(?i:{_COUNTED}),? an? ({_UNIT})\b(?! ({_VERB_FOLLOWS})\b)": "per, as in `records per second`",
    rf"\bone an? ({_UNIT}|attempt)\b": "one per …",
    r"\bonce a (task|topic|pass|launch)\b": "once per …",
    r"\bclass (Kept\w|Telling|Pace|Trouble|Hold\b)": "what the class is: StoredBatch, Reporter, RateLimit",
    r"\bdef hold\(|\btroubled\b": "what is done: watch_driver, note_problem",
    r"^    why: ": "message for a sentence, reason for a code",
    r"(offset|position|lag|row|read|land), a (partition|stream)\b": "per partition, per stream",
    r"\b[Ii]n hand\b": "the current batch, a running batch, a pass under way",
    r"\bof before\b": "former, earlier, of an earlier release",
    r"\b(goes|go|went|gone) on\b": "continue",
    r"\b[Ll]ast words\b": "last message",
    r"\b([Ii]t|nothing was decided, it) is tried again\b": "it will be retried",
    r"\bwhile the stream rests\b|\bis to rest\b": "while the stream is suspended, is to be suspended",
    r"\bis no (JSON object|YAML \(|table \(|text\b|number\b|list\b|whole number|duration\b)": "is not a …",
    r"\b(?<!here )is no (integer|lease|object|pattern|position|predecessor|setting|token)\b": "is not a …",
    r"\bruns? on (until|without)\b": "keep running",
    r": (is it|are they) there, (it|they|the) \w+ (is|are)\b": "if it is there, …",
    r"\b(?<!here )(?<!here still )(is|are) none\b(?! of (it|its|the|them|these|those|which)\b)": "not a …, not one of …",
    r"\bclass (Asked|PassStep|Stage)\b": "what the class is: CheckedTable, RequestedSpec, PassOperations, Setup",
}
"""What must not be written, as regular expressions, and what to write instead."""

ON_PAGES = {
    r"\b(is|are|was|has|have|names?|needs?|gets?|keeps) none\b(?! of)": "the noun: no driver, without a topic",
    r"\b[Nn]one (is|are|was|has|can|may|needs)\b": "the noun: no driver may, drivers do not",
}
"""The same for what users read: pages, the resource, the chart; records of decisions are read by those who read code."""

WHERE = ("operator", "spark_apps", "docs", "charts", "crds", "examples", "demo", "testbed", "bench", "scripts", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
KEPT = {
    "docs/glossary.md": "names the words",
    "scripts/check_words.py": "names the words",
    "tests/unit/test_check_words.py": "tests that they are found",
}
"""Files that keep such phrases, and why."""
_SUFFIXES = (".py", ".md", ".yaml", ".json", ".sql", ".tpl", ".txt", "")
_EXEMPT = "words: ok"


def problems_in(name: str, text: str) -> Iterator[str]:
    """Yield a sentence for each phrase of a file that has a better word."""
    phrases = {**INSTEAD, **ON_PAGES} if is_a_users_page(name) else INSTEAD
    for number, line in enumerate(text.splitlines(), start=1):
        for phrase, instead in phrases.items():
            if _EXEMPT not in line and (match := re.search(phrase, line)) is not None:
                yield f"{name}:{number}: {match[0]!r}; write instead: {instead}"


def is_a_users_page(name: str) -> bool:
    """Whether users read a file: a page other than a record of a decision, the resource's definition, a part of the chart."""
    return PurePath(name).suffix in (".md", ".yaml", ".json", ".tpl") and not name.startswith(("docs/adr/", "tests/"))


def is_read(name: str) -> bool:
    """Whether a file is one that people read, or that they are shown, such as a dashboard."""
    return name not in KEPT and PurePath(name).suffix in _SUFFIXES and not name.startswith("tests/golden/")


def problems() -> Iterator[str]:
    """Yield a sentence for each phrase that is found in what git tracks, and in new files that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *WHERE, *PAGES],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if is_read(name) and path.is_file():
            yield from problems_in(name, path.read_text())


def main() -> int:
    """Print what was found; 1 if anything was."""
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
