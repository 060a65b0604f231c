"""What many data files say of themselves, several asked at once: a batch may have many, and S3 is far away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.table import FileFacts

READERS = 8


def facts_at_once(
    files: Sequence[DataFile], facts_of: Callable[[DataFile], FileFacts | None]
) -> Mapping[str, FileFacts]:
    """Return what each file says of itself, by path; those of which `facts_of` has nothing are left out.

    It may raise FileNotFoundError, which is nothing, too; whatever else it raises is raised here, once all have been asked.
    """

    def asked(file: DataFile) -> FileFacts | None:
        try:
            return facts_of(file)
        except FileNotFoundError:
            return None

    if len(files) < 2:
        found = [asked(file) for file in files]
    else:
        with ThreadPoolExecutor(min(READERS, len(files))) as pool:
            found = list(pool.map(asked, files))
    return {file.path: facts for file, facts in zip(files, found, strict=True) if facts is not None}
