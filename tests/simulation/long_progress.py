"""What a long run has done: counted for its report, and kept so that it continues elsewhere.

Chunks are appended to a file beside the report as they are done, a line each; that file stays on its machine. What is committed
beside the report is a small file in which seeds that follow each other and that one commit has run are one entry with its sums.
"""

from __future__ import annotations

import json
import os
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.simulation.search import Chunk, Found
from tests.simulation.seeds_that_went_wrong import SEEDS_THAT_WENT_WRONG

CHUNK = 200
SEEDS_SHOWN = 50
MOST_WORDS = 300
"""Of a seed that went wrong: the seed says the rest."""


@dataclass(frozen=True)
class Ran:
    """Seeds that follow each other and that one commit has run, in so many seconds by the clock."""

    commit: str
    chunk: Chunk
    seconds: float

    def then(self, later: Ran) -> Ran:
        """Return both as one; the later one begins where this one ends."""
        ours, theirs = self.chunk, later.chunk
        both = Chunk(
            ours.first,
            theirs.until,
            ours.wrong + theirs.wrong,
            ours.verdicts + theirs.verdicts,
            ours.hazards + theirs.hazards,
            ours.halted + theirs.halted,
        )
        return replace(self, chunk=both, seconds=self.seconds + later.seconds)

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of JSON."""
        return {
            "commit": self.commit,
            "first": self.chunk.first,
            "until": self.chunk.until,
            "seconds": round(self.seconds, 3),
            "wrong": [[found.seed, line_of(found.words)] for found in self.chunk.wrong],
            "verdicts": self.chunk.verdicts,
            "hazards": self.chunk.hazards,
            "halted": self.chunk.halted,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Ran:
        """Read the object that `to_json` returns."""
        chunk = Chunk(
            told["first"],
            told["until"],
            tuple(Found(seed, words) for seed, words in told["wrong"]),
            Counter(told["verdicts"]),
            Counter(told["hazards"]),
            told["halted"],
        )
        return cls(told["commit"], chunk, told["seconds"])


def merged(ran: Iterable[Ran]) -> list[Ran]:
    """Return the same seeds in as few entries as can be, by commit and seed. What overlaps an entry before it is left out."""
    entries: list[Ran] = []
    for one in sorted(ran, key=lambda one: (one.commit, one.chunk.first, -one.chunk.until)):
        before = entries[-1] if entries and entries[-1].commit == one.commit else None
        if before is None or before.chunk.until < one.chunk.first:
            entries.append(one)
        elif before.chunk.until == one.chunk.first:
            entries[-1] = before.then(one)
    return entries


@dataclass
class Progress:
    """What of the seeds `[first, last)` has been run, in any order; `commit` is the one that runs now.

    `ran` is what counts, and `aside` what does not: it is of another commit or of other seeds, or there are seeds in it that
    count already, and of an entry only the sums of all its seeds are known.
    """

    commit: str
    first: int
    last: int
    any_commit: bool = False
    ran: list[Ran] = field(default_factory=list)
    aside: list[Ran] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    hazards: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)
    commits: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    halted: int = 0
    _spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def seeds(self) -> int:
        """How many seeds have been run."""
        return self.commits.total()

    def add(self, ran: Ran) -> None:
        """Count what was run, or put it aside."""
        chunk = ran.chunk
        place = bisect_left(self._spans, (chunk.first, chunk.until))
        near = self._spans[max(0, place - 1) : place + 1]
        fits = all(until <= chunk.first or chunk.until <= first for first, until in near)
        inside = self.first <= chunk.first and chunk.until <= self.last
        if not (fits and inside and (self.any_commit or ran.commit == self.commit)):
            self.aside.append(ran)
            return
        self._spans.insert(place, (chunk.first, chunk.until))
        self.ran.append(ran)
        self.commits[ran.commit] += chunk.until - chunk.first
        self.wrong |= {found.seed: found.words for found in chunk.wrong}
        self.verdicts += chunk.verdicts
        self.hazards += chunk.hazards
        self.halted += chunk.halted
        self.seconds += ran.seconds

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield what has not been run, in chunks."""
        ends = [(self.first, self.first), *self._spans, (self.last, self.last)]
        for (_, until), (first, _) in pairwise(ends):
            for start in range(until, first, CHUNK):
                yield start, min(start + CHUNK, first)

    def report(self) -> str:
        """Return the page for docs/reports/."""
        shown = sorted(self.wrong.items())[:SEEDS_SHOWN]
        told = ", ".join(str(seed) for seed, _ in shown) or "none"
        mended = [seed for seed in self.wrong if seed in SEEDS_THAT_WENT_WRONG]
        words = [f"- {seed}{' (mended)' if seed in mended else ''}: {line_of(text)}" for seed, text in shown]
        since = f" Mended since: {len(mended)}; `make test` runs each." if mended else ""
        lines = [
            "# A long run of the simulation",
            "",
            f"Seeds {self.first} to {self.last - 1} of {self._told_commits()}, {datetime.now(UTC):%Y-%m-%d}: "
            f"{self.seeds} seeds in {self.seconds:.0f} seconds on {os.cpu_count()} cores "
            f"({self.seeds / max(self.seconds, 1):.0f} seeds per second), the latest by Python {platform.python_version()}.",
            "",
            *([] if self.seeds == self.last - self.first else [f"**Not complete**: {self.seeds} seeds were run.", ""]),
            f"**Violations: {len(self.wrong)}.** Seeds: {told}.{since}",
            *words,
            "",
            f"{self.halted} runs ended halted, each for a reason that the oracle accepts; the others landed everything.",
            "",
            "| Verdict | Times |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in self.verdicts.most_common()),
            "",
            "| Hazard | Runs in which it struck |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in self.hazards.most_common()),
            "",
        ]
        return "\n".join(lines)

    def _told_commits(self) -> str:
        if set(self.commits) <= {self.commit}:
            return f"commit {self.commit}"
        told = ", ".join(f"{commit} ({seeds} seeds)" for commit, seeds in self.commits.most_common())
        return f"commit {told}" if len(self.commits) == 1 else f"{len(self.commits)} commits, {told}"


class ProgressFile:
    """The chunks that are done, a line each. A line that was cut short by a crash is run again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_into(self, progress: Progress) -> None:
        """Add what earlier runs have done; the progress knows what of it counts."""
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            progress.add(Ran.from_json(told))

    def append(self, ran: Ran) -> None:
        """Add a chunk; its seconds are those since the chunk before."""
        text = json.dumps(ran.to_json())
        with self._path.open("a") as file:
            file.write(f"{text}\n")


class CompactFile:
    """All that was ever run and is known here, in few entries: what is committed beside the report."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_into(self, progress: Progress) -> None:
        """Count its entries; read it before the chunks, which are in it where they were written before."""
        if self._path.exists():
            for told in json.loads(self._path.read_text()):
                progress.add(Ran.from_json(told))

    def write(self, progress: Progress) -> None:
        """Write what counts now, and what was put aside: another run may count it.

        Whoever is killed meanwhile leaves the former file.
        """
        entries = [json.dumps(one.to_json()) for one in merged([*progress.ran, *progress.aside])]
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text("[\n" + ",\n".join(entries) + "\n]\n")
        beside.replace(self._path)


def line_of(words: str) -> str:
    """Return what is told of a seed that went wrong, in one line."""
    return words.splitlines()[0][:MOST_WORDS]
