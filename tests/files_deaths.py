"""A driver of files that dies between two effects: raised at a named point, so that the stores are as a SIGKILL leaves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from exactlyonce.connectors.files import spark_log, spark_metadata
from exactlyonce.connectors.files.orphans import find_orphans
from tests.files_rig import RECORDS, Stream
from tests.ledgers import STREAM


class Killed(BaseException):
    """The driver died here."""


DEATHS = {
    "folder.taken": 1,
    "folder.columns-kept": 1,
    "files.written": 2,
    "files.checksum-moved": 1,  # while readers are shown nothing yet
    "files.moved": 2,
    "files.folder-removed": 2,
    "batch.rows-written": 1,
    "batch.source-checked": 2,
    "land.before-commit": 2,
    "batch.landed": 2,  # after the ledger, before readers are shown anything
    "publish.prepared": 5,  # in the middle of a compaction: its content is made and not there yet
    "publish.created": 5,
    "publish.cleaned-up": 5,
    "batch.published": 5,
}
"""Every point between two effects of the sink, in order, and the batch in which the driver dies there."""

ORDER = list(DEATHS)


def act_at(monkeypatch: pytest.MonkeyPatch, point: str, batch: int, act: Callable[[], object]) -> None:
    """Do something while the driver is at a point of a batch, once; some points do not tell the batch, and the first counts."""
    assert point in DEATHS
    armed = [(point, batch), (point, None)]

    def watcher(reached: str, at: int | None = None) -> None:
        if (reached, at) in armed:
            armed.clear()
            act()

    of_files = (f"connectors.files.{module}" for module in ("target", "writer", "local_folder"))
    for module in ("batch", "landing", "manifest_landing", *of_files):
        monkeypatch.setattr(f"exactlyonce_spark.{module}.reached", watcher)


def require_followed_by_one_that_neither_loses_nor_doubles(
    monkeypatch: pytest.MonkeyPatch, stream: Stream, point: str, batch: int, last: int, dies: Callable[[], object]
) -> None:
    """Let a driver die at a point of a batch, and the next one land up to another; every reader counts each record once."""
    monkeypatch.setattr(spark_log, "COMPACT_INTERVAL", 3)  # Spark takes it from the names of the entries
    monkeypatch.setattr(spark_metadata, "CLEANUP_DELAY_SECONDS", 0)
    act_at(monkeypatch, point, batch, dies)
    with pytest.raises(Killed):
        stream.land(stream.driver(), 1, batch)
    lands = ORDER.index(point) >= ORDER.index("batch.landed")
    landed = batch if lands else batch - 1
    assert stream.seen_by_pyarrow() == Counter(range(RECORDS * landed))
    if point != "folder.taken":  # the folder is empty but for the name of its stream
        shown = stream.seen_by_spark()
        assert set(shown.values()) <= {1}
        assert shown.keys() <= set(range(RECORDS * landed)), "readers are shown nothing that has not landed"
    successor = stream.next_attempt()
    stream.require(landed)
    stream.land(successor, landed + 1, last)
    stream.require(last)
    orphans = find_orphans(stream.store, stream.ledger, STREAM)
    writes = ORDER.index(point) >= ORDER.index("files.written")
    assert bool(orphans) == (writes and not lands), "what the dead driver wrote and did not land can be removed"
    stream.folder().remove(orphans)
    assert stream.on_disk() == {file.path for file in stream.listed()}
    assert stream.left_of_attempts() == set()
    stream.require(last)
