"""A driver of files that dies between two effects: raised at a named point, so that the stores are as a SIGKILL leaves them."""

from __future__ import annotations

from collections.abc import Callable

import pytest


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
