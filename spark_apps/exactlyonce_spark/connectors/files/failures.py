"""What errors that Spark tells say of a folder of files. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce_spark.connectors.recognised import Failures, Recognised

_FULL = re.compile(
    r"java\.io\.(?:IO|FileNotFound)Exception: ([^\n]*(?:No space left on device|Permission denied)[^\n]*)"
)
_ON_S3 = re.compile(
    r"(?:org\.apache\.hadoop\.fs\.s3a\.(?:AWS\w*|UnknownStore|UnsupportedRequest)Exception|java\.nio\.file\.AccessDeniedException)"
    r": ([^\n]+)"
)
"""What the S3A file system raises once it has tried as often as it is told. Source: S3AUtils.translateException, Hadoop 3.5."""

_FIRST_KEY = re.compile(r"\[S3Error\(Key=([^,]+), Code=(\w+).*")
"""The objects that could not be removed, up to a thousand in one line: the first of them tells why."""

_NOT_HELD = re.compile(r"\w+ files cannot hold a value of column .+?(?=\.? SQLSTATE: |$)", re.MULTILINE)
"""What `exact_values` raises in a task."""


def unwritable(why: str) -> str:
    """Return the message for a folder that takes no files."""
    return (
        f"No file can be written to the sink's folder ({why}); nothing was landed by this. Make the folder writable, or "
        "free space on it."
    )


def _outage(text: str) -> str | None:
    """Recognise a folder that takes no more files, and a bucket that does not answer."""
    found = _FULL.search(text)
    if found is not None:
        return unwritable(found[1].rstrip("."))
    found = _ON_S3.search(text)
    if found is not None:
        said = _FIRST_KEY.sub(r"\1: \2", found[1]).rstrip(".")
        return (
            f"S3 failed a request of Spark ({said}); nothing was landed by this. Check the bucket, the "
            "endpoint and the login."
        )
    return None


def _recognise(text: str) -> Recognised | None:
    """Recognise a value that readers would not get back."""
    found = _NOT_HELD.search(text)
    if found is None:
        return None
    advice = (
        "Nothing of its batch has landed; convert it in the transform, or, in a folder of files, choose another "
        "sink.files.format."
    )
    return Recognised("ValueNotHeld", f"{found[0].rstrip('.')}. {advice}")


FAILURES = Failures(recognise=_recognise, outage=_outage)
