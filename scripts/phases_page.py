"""Render docs/phases.md from the table of transitions in api/phases.py."""

from __future__ import annotations

import sys

from exactlyonce.api.conditions import STANDINGS
from exactlyonce.api.phases import RARE, TRANSITIONS, WRITERS, Transition
from scripts.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "phases.md"


def rendered() -> str:
    """Return the page."""
    lines = [
        "# Phases",
        "",
        "The phases of a stream's life cycle (`status.phase`), and every transition between them. Rendered from",
        "`operator/exactlyonce/api/phases.py` by `python -m scripts.phases_page`; each write of a status is",
        "checked against it.",
        "",
        "| Phase | Condition | Meaning |",
        "|---|---|---|",
        *(f"| **{phase}** | {standing.holds} | {standing.message} |" for phase, standing in STANDINGS.items()),
        "",
        "| From | Rarely from | To | Reason | Written by | Because |",
        "|---|---|---|---|---|---|",
        *(_row(it) for it in TRANSITIONS),
        "",
        f"Rarely: {RARE}",
        "",
        "Only an action of a person, or a rollback, takes a stream out of Halted or Completed. A transition that is not here",
        "is a defect: it is logged as an error and written, except one out of Halted or Completed, which is refused",
        "([ADR 3](adr/0003-crash-anywhere-in-a-pass.md)).",
        "",
        *(f"- **{writer}**: {when}" for writer, when in WRITERS.items()),
        "",
    ]
    return "\n".join(lines)


def _row(it: Transition) -> str:
    often = ", ".join(phase for phase in it.before if phase not in it.rare)
    return f"| {often} | {', '.join(it.rare)} | **{it.after}** | {it.reason} | {it.writer} | {it.message} |"


def main() -> int:
    """Write the page, or check it."""
    return write_or_check({PAGE: rendered()}, "the table of transitions says", "phases_page")


if __name__ == "__main__":
    sys.exit(main())
