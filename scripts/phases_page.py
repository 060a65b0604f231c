"""Render docs/phases.md from the table of transitions in api/phases.py."""

from __future__ import annotations

import sys

from exactlyonce.api.conditions import STANDINGS
from exactlyonce.api.phases import TRANSITIONS, WRITERS
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
        *(f"- **{writer}**: {when}" for writer, when in WRITERS.items()),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or check it."""
    return write_or_check({PAGE: rendered()}, "the table of transitions says", "phases_page")


if __name__ == "__main__":
    sys.exit(main())
