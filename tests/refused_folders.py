"""What a resource may not say of a folder that it reads: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, GONE, Changes, Refused

SOURCE = "spec.source.files"


def _folder(**fields: object) -> Changes:
    """Return the changes that make the source a folder with these fields."""
    return {"spec.source.kafka": GONE, SOURCE: {"path": "/incoming", **fields}}


REFUSED_FOLDERS = (
    Refused(
        "a folder without a path",
        {"spec.source.kafka": GONE, SOURCE: {}},
        f"{SOURCE}.path",
        "required",
        "Required value",
    ),
    Refused("a folder that is not absolute", _folder(path="incoming"), f"{SOURCE}.path", "write an absolute path"),
    Refused("a folder with a slash at its end", _folder(path="/incoming/"), f"{SOURCE}.path", "write an absolute path"),
    Refused("a folder in a bucket", _folder(path="s3a://lake/incoming"), f"{SOURCE}.path", "write an absolute path"),
    Refused(
        "a folder above", _folder(path="/incoming/../other"), f"{SOURCE}.path", "write the location without . and .."
    ),
    Refused("a name with a slash", _folder(fileNames="a/*.json"), f"{SOURCE}.fileNames", "write names with *"),
    Refused(
        "a name with many asterisks", _folder(fileNames="a*b*c*d*e*f"), f"{SOURCE}.fileNames", "at most four asterisks"
    ),
    Refused("a batch of no files", _folder(maxFilesPerTrigger=0), "maxFilesPerTrigger", "greater than or equal to 1"),
    Refused(
        "a batch of no bytes of files",
        _folder(maxBytesPerTrigger=0),
        "maxBytesPerTrigger",
        "greater than or equal to 1",
    ),
    Refused("a header of 101 lines", _folder(headerLines=101), "headerLines", "less than or equal to 100"),
    Refused("an age of two days", _folder(minFileAge="48h"), f"{SOURCE}.minFileAge", "give a time from 0s to 24h"),
    Refused(
        "deletions from files",
        {**DELETING, **_folder()},
        "spec",
        "source.format.onTombstone: Delete is not for source.files",
    ),
    Refused(
        "a transaction for a folder",
        {**_folder(), "spec.sink.postgres.commit": "Partition"},
        "spec",
        "sink.postgres.commit: Partition is not for source.files",
    ),
    Refused(
        "a stream that reads what it writes",
        {**_folder(path="/lake/rows/new"), "spec.sink": {"files": {"path": "/lake/rows"}}},
        "spec",
        "source.files.path and sink.files.path have to be different folders",
    ),
    Refused(
        "a folder that holds the checkpoint",
        {**_folder(path="/data"), "spec.checkpoint": {"local": {"path": "/data/checkpoint"}}},
        "spec",
        "source.files.path and the checkpoint have to be different folders",
    ),
)
