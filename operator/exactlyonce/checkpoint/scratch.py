"""Room on this machine for files that it works on, and what to say where there is none."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from exactlyonce.errors import RefusedOutside

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ScratchFull(RefusedOutside):
    """This machine has no room for temporary files."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for as long as the block takes.

    Raises:
        ScratchFull: if none can be made.
    """
    try:
        made = TemporaryDirectory(prefix="exactlyonce-")
    except OSError as problem:
        raise _full(problem) from problem
    with made as folder:
        yield Path(folder)


@contextmanager
def needing_room() -> Iterator[None]:
    """Run a block that writes into a scratch folder.

    Raises:
        ScratchFull: if its disk is full.
    """
    try:
        yield
    except OSError as problem:
        if problem.errno not in _NO_ROOM:
            raise
        raise _full(problem) from problem


def _full(problem: OSError) -> ScratchFull:
    return ScratchFull(
        f"There is no room for temporary files on this machine ({problem.strerror}); free space on that disk, or set TMPDIR to "
        "a folder on a larger one, and run it again."
    )
