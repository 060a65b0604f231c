"""Files that are made from the code: written, or checked with `--check`, as `make lint` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(made: Mapping[Path, str], source: str, module: str) -> int:
    """Write the files that `module` makes, or only tell which are not what `source` says; return the exit status."""
    if "--check" not in sys.argv[1:]:
        for file, text in made.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return 0
    stale = [
        str(file.relative_to(ROOT)) for file, text in made.items() if not file.exists() or file.read_text() != text
    ]
    if stale:
        print(f"{', '.join(stale)}: not what {source}; regenerate with python -m scripts.{module}")
    return 1 if stale else 0
