"""Files of a state folder that are replaced whole."""

from __future__ import annotations

import os
from pathlib import Path


def replace_whole(file: Path, text: str) -> None:
    """Put a text in the place of a file, flushed to the disk: whoever dies meanwhile leaves the former one whole.

    Raises:
        OSError: if it cannot be written; the former one stays.
    """
    beside = file.with_suffix(".tmp")
    with beside.open("w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    beside.replace(file)
