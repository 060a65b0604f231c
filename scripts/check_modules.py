"""Find modules of the product that are longer than 800 lines: whoever needs that many has more than one thing to say.

`python -m scripts.check_modules` names file and length.
"""

from __future__ import annotations

import sys

from scripts.generated import ROOT

MOST = 800
WHERE = ("operator/exactlyonce", "spark_apps/exactlyonce_spark")


def main() -> int:
    """Print what is too long; the exit status is 1 if anything is."""
    lengths = {
        file.relative_to(ROOT): len(file.read_text().splitlines())
        for folder in WHERE
        for file in sorted((ROOT / folder).rglob("*.py"))
    }
    for file, lines in lengths.items():
        if lines > MOST:
            print(f"{file}: {lines} lines, and a module has at most {MOST}; split it by what it is about.")
    return 1 if any(lines > MOST for lines in lengths.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
