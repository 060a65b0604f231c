"""Render docs/phases.md from the table of transitions in api/phases.py."""

from __future__ import annotations

import sys

from exactlyonce.api.conditions import STANDINGS
from exactlyonce.api.phases import TRANSITIONS, Writer
from scripts.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "phases.md"


def rendered() -> str:
    """Return the page."""
    lines = [
        "# Phases",
        "",
        "Where a stream is in its life (`status.phase`), and every way from one phase to another. Rendered from",
        "`operator/exactlyonce/api/phases.py` by `python -m scripts.phases_page`; who writes a phase is held to it.",
        "",
        "| Phase | Condition | Meaning |",
        "|---|---|---|",
        *(f"| **{phase}** | {standing.holds} | {standing.message} |" for phase, standing in STANDINGS.items()),
        "",
        "| From | To | Written by | Because |",
        "|---|---|---|---|",
        *(f"| {', '.join(it.before)} | **{it.after}** | {it.writer} | {it.reason} |" for it in TRANSITIONS),
        "",
        "Halted and Completed are left only by what a person does, or by a roll back.",
        "",
        *(f"- **{writer}**: {MEANINGS[writer]}" for writer in Writer),
        "",
    ]
    return "\n".join(lines)


MEANINGS = {
    Writer.LOOP: "a pass of the loop over the stream: it looks at the driver, records an attempt, decides and launches.",
    Writer.HOLD: "the operator, for a stream whose spec is invalid or that lacks something, such as a secret: nothing is "
    "launched.",
    Writer.PERSON: "the operator, for a person who has acted since: the resource was changed, or `exactlyonce run` was called.",
    Writer.ROLL_BACK: "the operator, when it goes back to the spec that ran last.",
}


def main() -> int:
    """Write the page, or check it."""
    return write_or_check({PAGE: rendered()}, "the table of transitions says", "phases_page")


if __name__ == "__main__":
    sys.exit(main())
