"""What a resource may not say of a folder that it reads: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import DELETING, GONE, Changes, Refused

SOURCE = "spec.source.files"
TABLE, LEDGER = "sink.delta.location", "ledger.objectLog.location"
FILES_OF_ROWS: Changes = {"spec.sink": {"files": {"path": "/lake/rows"}}}


def _folder(**fields: object) -> Changes:
    """Return the changes that make the source a folder with these fields."""
    return {"spec.source.kafka": GONE, SOURCE: {"path": "/incoming", **fields}}


REFUSED_FOLDERS = (
    Refused(
        "the output of a former query, and every file that it has read",
        {**_folder(), "spec.sink": {"files": {"path": "/lake/rows", "continueAfterBatch": 12}}},
        "spec",
        "sink.files.continueAfterBatch needs source.files.start to say where that batch ends: Oldest would read again",
    ),
    Refused(
        "a start without its moment",
        _folder(start={"from": "Timestamp"}),
        f"{SOURCE}.start",
        "timestamp belongs to from: Timestamp",
    ),
    Refused(
        "a checkpoint that nothing starts from",
        _folder(start={"checkpoint": "/spark/checkpoint"}),
        f"{SOURCE}.start",
        "checkpoint belongs to from: SparkCheckpoint",
    ),
    Refused(
        "a checkpoint on S3 without a login to it",
        _folder(start={"from": "SparkCheckpoint", "checkpoint": "s3a://lake/checkpoint"}),
        SOURCE,
        "start.checkpoint may be on S3 only where path is",
    ),
    Refused(
        "files of rows from a topic",
        {"spec.source.format.type": "Parquet"},
        "spec",
        "source.format.type: Parquet and Orc need source.files; write Json, Csv or Raw for another source",
    ),
    Refused(
        "a header in front of rows",
        {**_folder(headerLines=1), "spec.source.format.type": "Orc"},
        "spec",
        "source.files.headerLines is for files of lines",
    ),
    Refused(
        "options of a format that has none",
        {**_folder(), "spec.source.format.type": "Parquet", "spec.source.format.options": {"mergeSchema": "true"}},
        "spec.source.format",
        "options may set nothing for Parquet",
    ),
    Refused(
        "options of ORC",
        {**_folder(), "spec.source.format.type": "Orc", "spec.source.format.options": {"mergeSchema": "true"}},
        "spec.source.format",
        "options may set nothing for Orc",
    ),
    Refused(
        "a folder without a path",
        {"spec.source.kafka": GONE, SOURCE: {}},
        f"{SOURCE}.path",
        "required",
        "Required value",
    ),
    Refused(
        "a folder that is not absolute",
        _folder(path="incoming"),
        f"{SOURCE}.path",
        "write s3a://bucket/folder, an absolute path",
    ),
    Refused(
        "a folder with a slash at its end",
        _folder(path="/incoming/"),
        f"{SOURCE}.path",
        "write s3a://bucket/folder, an absolute path",
    ),
    Refused("a whole bucket", _folder(path="s3a://lake"), f"{SOURCE}.path", "write s3a://bucket/folder"),
    Refused(
        "a login to a path",
        _folder(secretRef={"name": "lake"}),
        SOURCE,
        "secretRef, endpoint, region and pathStyle belong to a path",
    ),
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
    *(
        Refused(
            f"a folder {where} the stream's own table",
            {**_folder(path=path, recursive=True), "spec.sink": {"delta": {"location": "file:///lake/orders"}}},
            "spec",
            "source.files.path and sink.delta.location have to be different folders, neither of them in the other",
        )
        for where, path in (("in", "/lake/orders/new"), ("around", "/lake"), ("at the place of", "/lake/orders"))
    ),
    Refused(
        "a folder that is the ledger",
        {**_folder(path="/lake/ledger"), **FILES_OF_ROWS, "spec.ledger": {"objectLog": {"location": "/lake//ledger/"}}},
        "spec",
        "source.files.path and ledger.objectLog.location have to be different folders",
    ),
    *(
        Refused(
            f"an archive in {where}",
            {**_folder(cleanSource="Archive", archivePath=archive), **FILES_OF_ROWS, **more},
            "spec",
            f"source.files.archivePath and {other} have to be different folders, neither of them in the other",
        )
        for where, archive, more, other in (
            ("the files of the sink", "/lake/rows/old", {}, "sink.files.path"),
            ("the stream's own table", "/lake/rows", {"spec.sink": {"delta": {"location": "/lake/rows"}}}, TABLE),
            ("the ledger", "/lake/ledger", {"spec.ledger": {"objectLog": {"location": "/lake/ledger"}}}, LEDGER),
            ("the checkpoint", "/logs/old", {"spec.checkpoint": {"local": {"path": "/logs"}}}, "the checkpoint"),
        )
    ),
    Refused(
        "a folder that holds the checkpoint",
        {**_folder(path="/data"), "spec.checkpoint": {"local": {"path": "/data/checkpoint"}}},
        "spec",
        "source.files.path and the checkpoint have to be different folders",
    ),
    Refused(
        "an archive without a folder",
        _folder(cleanSource="Archive"),
        SOURCE,
        "archivePath belongs to cleanSource: Archive",
    ),
    Refused(
        "a folder of an archive that there is not",
        _folder(cleanSource="Delete", archivePath="/archive"),
        SOURCE,
        "archivePath belongs to cleanSource: Archive",
    ),
    Refused(
        "an archive in the folder itself",
        _folder(cleanSource="Archive", archivePath="/incoming/old"),
        SOURCE,
        "archivePath and path have to be different folders",
    ),
    Refused(
        "an archive on a disk for a folder on S3",
        _folder(path="s3a://lake/incoming", cleanSource="Archive", archivePath="/archive"),
        SOURCE,
        "archivePath and path have to be both on S3",
    ),
    Refused(
        "files that go though a quarantined batch may be replayed",
        {**_folder(cleanSource="Delete"), "spec.recovery.onPoisonBatch": "Quarantine"},
        "spec",
        "source.files.cleanSource has to be Off with recovery.onPoisonBatch: Quarantine",
    ),
    Refused(
        "single records of a folder",
        {**_folder(), "spec.recovery.onPoisonBatch": "Bisect"},
        "spec",
        "recovery.onPoisonBatch: Bisect is not for source.files, whose positions count no records",
    ),
)
