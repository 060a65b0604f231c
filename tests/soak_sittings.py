"""What the sittings of a soak have done, added up: a thousand kills take hours, and are done in as many sittings as they need.

A sitting has servers, streams and ids of its own, and counts once all of its ids were compared. One that was cut short (Ctrl-C,
a reboot) has compared nothing and counts for nothing.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak_stream import Strike

KINDS = tuple(strike.value for strike in Strike)


@dataclass(frozen=True)
class OfMode:
    """What one stream of a sitting went through; `kinds` are the kills that counted, `points` where drivers were killed."""

    kinds: Counter[str]
    ids: int
    attempts: int
    verdicts: Counter[str]
    points: Counter[str]

    def __add__(self, other: OfMode) -> OfMode:
        return OfMode(
            self.kinds + other.kinds,
            self.ids + other.ids,
            self.attempts + other.attempts,
            self.verdicts + other.verdicts,
            self.points + other.points,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of JSON."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> OfMode:
        """Read the object that `to_json` returns."""
        counters = {name: Counter(told[name]) for name in ("kinds", "verdicts", "points")}
        return cls(ids=told["ids"], attempts=told["attempts"], **counters)


NOTHING = OfMode(Counter(), 0, 0, Counter(), Counter())


@dataclass(frozen=True)
class Sitting:
    """One sitting: the commit whose code ran, the seed of its strikes, and each mode. `wrong` is what it failed with."""

    commit: str
    seed: int
    seconds: float
    modes: dict[str, OfMode]
    lost_batches: int = 0
    wrong: str = ""

    @property
    def kills(self) -> int:
        """How many kills count: none where ids were lost or doubled, or could not be compared."""
        return 0 if self.wrong else sum(mode.kinds.total() for mode in self.modes.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of JSON."""
        return {**vars(self), "modes": {mode: done.to_json() for mode, done in self.modes.items()}}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Sitting:
        """Read the object that `to_json` returns."""
        return cls(**{**told, "modes": {mode: OfMode.from_json(done) for mode, done in told["modes"].items()}})


@dataclass
class Sittings:
    """The sittings that count towards the kills that are asked for; `commit` is the one that runs now."""

    commit: str
    asked: int
    found: list[Sitting] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """How many kills have been done."""
        return sum(sitting.kills for sitting in self.found)

    @property
    def left(self) -> int:
        """How many kills are left."""
        return max(0, self.asked - self.kills)

    @property
    def wrong(self) -> list[Sitting]:
        """The sittings that went wrong."""
        return [sitting for sitting in self.found if sitting.wrong]

    def next_seed(self, first: int) -> int:
        """Return the first seed from this one on that has not run: the same strikes again would show nothing new."""
        known = {sitting.seed for sitting in self.found}
        return next(seed for seed in itertools.count(first) if seed not in known)

    def report(self) -> str:
        """Return what was done and found, as the page of the report."""
        good = [sitting for sitting in self.found if not sitting.wrong]
        modes = sorted({mode for sitting in good for mode in sitting.modes})
        sums = {mode: _sum(sitting.modes.get(mode, NOTHING) for sitting in good) for mode in modes}
        minutes = sum(sitting.seconds for sitting in self.found) / 60
        return "\n".join(
            [
                f"{self.kills} kills in {len(self.found)} sittings and {minutes:.0f} minutes, of {self._told_commits()}.",
                "",
                *([f"**Not complete**: {self.asked} kills are asked for.", ""] if self.left else []),
                f"**Sittings that went wrong: {len(self.wrong)}.**",
                *(f"- seed {sitting.seed}, commit {sitting.commit}: {sitting.wrong}" for sitting in self.wrong),
                "",
                *_table_of_kinds(sums),
                "",
                *([f"**Not struck yet**: {not_struck}.", ""] if (not_struck := _not_struck(sums)) else []),
                f"Batches that failovers took away, and that landed again: {sum(each.lost_batches for each in good)}.",
                "",
                *(line for mode, done in sums.items() for line in _lines_of(mode, done)),
                "",
                *_table_of_sittings(self.found),
            ]
        )

    def _told_commits(self) -> str:
        kills: Counter[str] = Counter()
        for sitting in self.found:
            kills[sitting.commit] += sitting.kills
        if set(kills) <= {self.commit}:
            return f"commit {self.commit}"
        told = ", ".join(f"{commit} ({count} kills)" for commit, count in kills.most_common())
        return told if len(kills) == 1 else f"{len(kills)} commits, {told}"


class SittingsFile:
    """The sittings that are done, a line each; without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read_into(self, sittings: Sittings, any_commit: bool = False) -> None:
        """Count the sittings of the same commit, or of any. A line that was cut short by a crash counts for nothing."""
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if any_commit or told["commit"] == sittings.commit:
                sittings.found.append(Sitting.from_json(told))

    def append(self, sitting: Sitting) -> None:
        """Add a sitting whose ids were compared, or that went wrong."""
        if self._path is None:
            return
        text = self._path.read_text() if self._path.exists() else ""
        with self._path.open("a") as file:
            if text and not text.endswith("\n"):
                file.write("\n")  # or this sitting would become a part of a line that was cut short
            file.write(f"{json.dumps(sitting.to_json())}\n")


def _sum(modes: Iterable[OfMode]) -> OfMode:
    return sum(modes, NOTHING)


def _not_struck(sums: dict[str, OfMode]) -> str:
    """Return what has not been struck yet in a mode: a kill of each kind has to come in each."""
    missing = {mode: [f"“{kind}”" for kind in KINDS if not done.kinds[kind]] for mode, done in sums.items()}
    return "; ".join(f"in commit: {mode}, {', '.join(kinds)}" for mode, kinds in missing.items() if kinds)


def _table_of_kinds(sums: dict[str, OfMode]) -> list[str]:
    kinds = sorted({kind for done in sums.values() for kind in done.kinds})
    rows = [[kind, *(str(done.kinds[kind]) for done in sums.values())] for kind in kinds]
    head = ["What was struck", *(f"while commit: {mode} was in a batch" for mode in sums)]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _table_of_sittings(sittings: list[Sitting]) -> list[str]:
    rows = [
        [each.commit, str(each.seed), str(each.kills), str(sum(mode.ids for mode in each.modes.values()))]
        for each in sittings
    ]
    head = ["Commit", "Seed", "Kills", "Ids"]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _lines_of(mode: str, done: OfMode) -> list[str]:
    verdicts = ", ".join(f"{kind} {count}" for kind, count in done.verdicts.most_common())
    points = ", ".join(f"{point or 'before a batch'} {count}" for point, count in done.points.most_common())
    return [
        f"- commit: {mode}: {done.ids} ids, 0 lost, 0 doubled; {done.attempts} attempts. {verdicts}.",
        f"  Drivers were killed at, or at random after: {points}.",
    ]
