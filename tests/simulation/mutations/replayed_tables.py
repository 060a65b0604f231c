"""What a replay into a table with a log is protected by, taken away piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.connectors.files.manifest import is_of_replay
from exactlyonce.ledger.port import Lock
from exactlyonce_spark import landing_elsewhere, manifest_landing
from exactlyonce_spark.connectors.delta.manifest import TableManifest
from exactlyonce_spark.connectors.delta.target import TableTarget
from tests.simulation.table import FOREIGN, MemoryTableLog, Version


@contextmanager
def a_batch_is_committed_without_what_it_took_over() -> Iterator[None]:
    """Tables: the driver that has landed a batch commits the files that it wrote itself, and not those of replays."""
    publish = TableTarget.publish

    def own_files_alone(self: TableTarget, batch: Any, committable: str, records: Any = None) -> None:
        recorded = TableManifest.from_json(batch, committable)
        own = tuple(file for file in recorded.manifest.files if not is_of_replay(file.path))
        publish(self, batch, replace(recorded, manifest=replace(recorded.manifest, files=own)).to_json(), records)

    with mock.patch.object(TableTarget, "publish", own_files_alone):
        yield


@contextmanager
def what_a_batch_took_over_is_committed_in_a_version_of_its_own() -> Iterator[None]:
    """Tables: the files of replays are committed before those of their batch, in a version without the batch's number."""
    commit = MemoryTableLog.commit

    def in_two_versions(self: MemoryTableLog, manifest: TableManifest | None, facts: Any) -> bool:
        of_replays = tuple(path for path in facts if is_of_replay(path))
        if of_replays:
            self._output.take_step("commit what replays have landed")
            self._output.add(Version(FOREIGN, adds=of_replays))
        return commit(self, manifest, {path: fact for path, fact in facts.items() if path not in of_replays})

    with mock.patch.object(MemoryTableLog, "commit", in_two_versions):
        yield


@contextmanager
def what_a_batch_takes_over_is_taken_before_the_batch_lands() -> Iterator[None]:
    """Tables: what replays have landed is taken in a transaction of its own, and then lands with the next batch."""
    land, taken_over = manifest_landing.land_manifest, manifest_landing._taken_over
    taken: dict[int, Any] = {}

    def taken_first(ledger: Any, permit: Any, target: Any, planned: Any, rows: Any, check: Any) -> int:
        with ledger.transaction() as transaction:
            transaction.lock_stream(permit.stream_id, Lock.UPDATE)
            taken[id(target)] = transaction.take_replayed(permit.stream_id)
        return land(ledger, permit, target, planned, rows, check)

    def with_those(transaction: Any, stream_id: str, target: Any, batch: Any, committable: str) -> str:
        found = taken[id(target)]
        text = target.with_replayed(batch, committable, found) if found else committable
        return taken_over(transaction, stream_id, target, batch, text)

    with (
        mock.patch.object(landing_elsewhere, "land_manifest", taken_first),
        mock.patch.object(manifest_landing, "_taken_over", with_those),
    ):
        yield


@contextmanager
def what_waits_is_committed_by_whoever_starts() -> Iterator[None]:
    """Tables: a driver that starts commits what replays have landed, and the next batch takes it over all the same."""
    require = TableTarget.require_replayed

    def committed_at_once(self: TableTarget, replayed: Any) -> None:
        require(self, replayed)
        waiting = [TableManifest.from_json(0, text) for text in replayed.values()]  # type: ignore[arg-type]
        paths = tuple(file.path for it in waiting for file in it.manifest.files)
        if paths:
            self._log._output.add(Version(FOREIGN, adds=paths))  # type: ignore[attr-defined]

    with mock.patch.object(TableTarget, "require_replayed", committed_at_once):
        yield
