"""Which code a long run has run: what its progress file and its report name."""

from __future__ import annotations

import hashlib
import subprocess

from scripts.generated import ROOT


def commit_of(*paths: str) -> str:
    """Return the commit that is checked out, and whether the code below these paths was changed since."""
    changes = _git("diff", "HEAD", "--", *paths)
    return f"{_git('rev-parse', '--short', 'HEAD').strip()}{f' with changes {_hash_of(changes)}' if changes else ''}"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _hash_of(changes: str) -> str:
    """Return what tells one set of uncommitted changes from another."""
    return hashlib.sha256(changes.encode()).hexdigest()[:8]
