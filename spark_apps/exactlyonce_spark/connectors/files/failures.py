"""What errors that Spark tells say of a folder of files. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures

_FULL = re.compile(
    r"java\.io\.(?:IO|FileNotFound)Exception: ([^\n]*(?:No space left on device|Permission denied)[^\n]*)"
)


def _outage(text: str) -> str | None:
    """Recognise a folder that takes no more files."""
    found = _FULL.search(text)
    if found is None:
        return None
    return f"The path of sink.files takes no files ({found[1].rstrip('.')}); nothing was landed by this."


FAILURES = Failures(outage=_outage)
