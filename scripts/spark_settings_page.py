"""Make the list in docs/spark-settings.md from the code that refuses; `--check` only tells whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from exactlyonce.api import refused_conf

PAGE = Path(__file__).resolve().parent.parent / "docs" / "spark-settings.md"
MARK = "<!-- made: do not edit below -->\n"


def page() -> str:
    """Return the page as it should be."""
    head = PAGE.read_text().split(MARK)[0]
    rows = [(f"`{key}`", reason) for key, reason in refused_conf.ALWAYS.items()]
    rows += [(f"`{key}`, unless `false`", reason) for key, reason in refused_conf.WHEN_TRUE.items()]
    rows += [(f"`{prefix}…`", reason) for prefix, reason in refused_conf.PREFIXES.items()]
    lines = [f"| {what} | {reason} |" for what, reason in sorted(rows)]
    return head + MARK + "\n".join(["", "| Setting | Why it is refused |", "|---|---|", *lines, ""])


def main() -> int:
    """Write the page, or check it."""
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != made:
            print(f"{PAGE.name} is not what the code refuses; make it anew: python scripts/{Path(__file__).name}")
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
