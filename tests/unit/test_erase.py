"""`deletionPolicy: Delete` takes away what is the resource's own, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.checkpoint.generation import Marker, create_marker, replace_marker
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.deletion import StillErasing
from exactlyonce.control.erase import erase
from exactlyonce.control.lease import NotLeading
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.history import FailureSummary
from exactlyonce.ledger.replay_decisions import ReplayDecision
from exactlyonce.ledger.rows import (
    NO_POSITIONS,
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    FailureStatus,
    LedgerView,
    Owner,
    StreamRow,
)
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Ranges
from tests.resource_documents import changed, document

OURS = Owner("cluster-1", "shop/orders/u-1")
COPY = changed(document(), {"metadata.uid": "u-1"})
TOKEN = "token-1"
DATABASE = DatabaseIdentity("1", 5)


@dataclass
class OneRow:
    """A ledger with the row of one stream, or none."""

    owner: Owner | None
    forgotten: list[Owner] = field(default_factory=list)
    batch: BatchRow | None = None
    released: bool = True
    decided: BatchNumber | None = None
    replayed_at: datetime | None = None
    waiting: Sequence[str] = ()
    decisions: tuple[ReplayDecision, ...] = ()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Have the entries of replays read: those that no batch has taken over, and the loads that they have decided."""
        decided = {it.name: it.to_json() for it in self.decisions}
        yield SimpleNamespace(read_replayed=lambda _: {**dict.fromkeys(self.waiting, "{}"), **decided})

    def summed_failures(
        self, stream_id: str, statuses: Collection[FailureStatus], moments: Sequence[datetime]
    ) -> FailureSummary:
        """Return a range of 20 records that a replay has landed, if there is one."""
        assert tuple(statuses) == (FailureStatus.REPLAYED,)
        at = self.replayed_at
        return FailureSummary(at, tuple(20 if at is not None and at > moment else 0 for moment in moments))

    def view(self, stream_id: str) -> Any:
        """Return the row."""
        assert stream_id == "shop/orders"
        if self.owner is None:
            return None
        number, batches = (None, ()) if self.batch is None else (self.batch.batch, (self.batch,))
        row = StreamRow(
            stream_id, TOKEN, self.owner, DATABASE, Epoch(3), "ticket", None, Epoch(3), self.released, number
        )
        decided = None if self.decided is None else DecidedBatch(self.decided, ())
        return LedgerView(row, NO_POSITIONS, batches, decided=decided)

    def forget(self, stream_id: str, owner: Owner) -> None:
        """Write it down."""
        self.forgotten.append(owner)


def location(folder: Path, token: str | None = TOKEN, stream_id: str = "shop/orders") -> LocalLogStore:
    """Return a location with one generation, marked as a stream's, and with what its source keeps."""
    store = LocalLogStore(str(folder))
    store.create("source/of-a-folder/list", b"v1")
    store.create("generation-000001-a1/metadata", b"{}")
    if token is not None:
        create_marker(store, Marker(stream_id, token))
    return store


def files(folder: Path) -> set[str]:
    """Return the files below a folder."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def erased(
    ledger: OneRow,
    store: LocalLogStore,
    may_act: Callable[[], bool] = lambda: True,
    resource: dict[str, Any] = COPY,
) -> str | None:
    """Erase what the resource names."""
    places = Bulkheads(1)
    erasable = SimpleNamespace(
        ledger=ledger, at_ledger=places.store("ledger"), checkpoints=store, at_checkpoints=places.store("lake")
    )
    parts: Any = SimpleNamespace(
        cluster=SimpleNamespace(cluster_id="cluster-1"), erasable=lambda stream: erasable, may_act=may_act
    )
    return erase(parts, resource)


def test_what_is_its_own_goes_and_doing_it_again_is_harmless(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path)
    assert erased(ledger, store) is None
    assert files(tmp_path) == set()
    assert ledger.forgotten == [OURS]
    ledger.owner = None
    assert erased(ledger, store) is None


def test_a_copy_of_anothers_resource_takes_nothing_away(tmp_path: Path) -> None:
    ledger, store = OneRow(Owner("cluster-2", "shop/orders/u-9")), location(tmp_path)
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "belong to" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [])


def test_a_resource_that_never_ran_takes_nothing_away(tmp_path: Path) -> None:
    ledger, store = OneRow(None), location(tmp_path)
    before = files(tmp_path)
    erased(ledger, store)
    assert (files(tmp_path), ledger.forgotten) == (before, [])


@pytest.mark.parametrize("token", ["token-of-another", None])
def test_a_checkpoint_that_is_not_marked_as_its_own_stays(token: str | None, tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path, token)
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "stays" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [OURS])


def test_a_checkpoint_that_is_marked_as_another_streams_stays_whatever_its_token(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path, stream_id="shop/sales")
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "is marked as that of another stream" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [OURS])


INTO_A_TABLE = changed(COPY, {"spec.sink": {"delta": {"location": "/lake/orders"}}})


def batch_41(status: BatchStatus) -> BatchRow:
    """The latest batch, of one partition."""
    return BatchRow(BatchNumber(41), Epoch(3), status, Ranges({Partition("orders", 0): OffsetRange(70, 90)}))


def test_a_batch_that_a_dead_driver_landed_and_may_not_have_shown_is_named_as_its_record_goes(tmp_path: Path) -> None:
    ledger = OneRow(OURS, batch=batch_41(BatchStatus.LANDED), released=False)
    left = erased(ledger, location(tmp_path, "token-of-another"), resource=INTO_A_TABLE)
    assert ledger.forgotten == [OURS]
    assert left is not None
    assert left.startswith(
        "Batch 41 has landed by the ledger, and the driver that landed it did not end by its own word: its"
    )
    assert "this: batch 41 (orders-0 [70, 90)). The checkpoint in" in left


def test_a_batch_that_is_decided_and_not_committed_is_named_as_its_record_goes(tmp_path: Path) -> None:
    ledger = OneRow(OURS, batch=batch_41(BatchStatus.DECIDED), decided=BatchNumber(41))
    left = erased(ledger, location(tmp_path))
    assert left is not None
    assert left.startswith(
        "Batch 41 is decided in the ledger and not committed in the sink: some or all of its rows are not"
    )
    assert left.endswith("batch 41 (orders-0 [70, 90)).")


@pytest.mark.parametrize(
    ("status", "released", "resource"),
    [
        (BatchStatus.LANDED, True, INTO_A_TABLE),
        (BatchStatus.SEEDED, False, INTO_A_TABLE),
        (BatchStatus.LANDED, False, COPY),  # in one transaction with its rows
    ],
)
def test_a_batch_whose_rows_are_known_to_be_shown_is_not_named(
    tmp_path: Path, status: BatchStatus, released: bool, resource: dict[str, Any]
) -> None:
    ledger = OneRow(OURS, batch=batch_41(status), released=released)
    assert erased(ledger, location(tmp_path), resource=resource) is None


INTO_FILES = changed(COPY, {"spec.sink": {"files": {"path": "/lake/orders"}}})
INTO_TABLE = changed(COPY, {"spec.sink": {"delta": {"location": "/lake/orders"}}})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("landed_at", "resource", "waiting", "told"),
    [
        (NOON - timedelta(hours=1), INTO_FILES, ["replay-a"], "20 records were landed by replays, in files"),
        (NOON - timedelta(hours=1), INTO_TABLE, ["replay-a"], "20 records were landed by replays, in files"),
        (NOON + timedelta(hours=1), INTO_TABLE, ["replay-a"], "Records were landed by replays, in files"),
        (NOON - timedelta(hours=1), INTO_TABLE, [], None),
        (NOON - timedelta(hours=1), COPY, [], None),
    ],
    ids=[
        "no batch since",
        "no batch since, in a table",
        "a batch since, whose clock is ahead",
        "nothing but records of which no row was made",
        "rows in the ledger's database",
    ],
)
def test_what_a_replay_landed_and_no_batch_has_taken_over_is_named_as_its_record_goes(
    tmp_path: Path, landed_at: datetime, resource: dict[str, Any], waiting: Sequence[str], told: str | None
) -> None:
    batch = replace(batch_41(BatchStatus.LANDED), landed_at=landed_at)
    ledger = OneRow(OURS, batch=batch, replayed_at=NOON, waiting=waiting)
    left = erased(ledger, location(tmp_path), resource=resource)
    assert (left is None) is (told is None)
    if told is not None:
        assert left is not None
        assert left.startswith(told)
        assert "replay-a" in left, "others that begin so are of replays that died, and have not landed"


def test_of_many_entries_of_replays_some_are_named(tmp_path: Path) -> None:
    names = [f"replay-{number:02}" for number in range(12)]
    ledger = OneRow(OURS, batch=batch_41(BatchStatus.LANDED), replayed_at=NOON, waiting=names)
    left = erased(ledger, location(tmp_path), resource=INTO_TABLE)
    assert left is not None
    assert "replay-09 and 2 more" in left


class AdoptedMeanwhile(LocalLogStore):
    """A location that another stream adopts while its first generation is being removed."""

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove it, and be the other stream."""
        replace_marker(self, Marker("shop/orders", TOKEN), Marker("shop/sales", "token-2"))
        return super().remove(path, is_enough)


def test_a_location_that_is_adopted_while_it_is_erased_keeps_what_is_still_there(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), AdoptedMeanwhile(str(location(tmp_path).location))
    store.create("generation-000002-a2/metadata", b"{}")
    left = erased(ledger, store)
    assert left is not None
    assert "is marked as that of another stream" in left
    assert files(tmp_path) == {"generation-000002-a2/metadata", "source/of-a-folder/list", "stream.json"}


class Page(LocalLogStore):
    """A store that removes a file at a time, and asks after each whether that is enough."""

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove one file."""
        for entry in self.list(path) if (Path(self.location) / path).is_dir() else ():
            super().remove(f"{path}/{entry.name}")
            if is_enough():
                return False
        return super().remove(path)


def test_a_large_checkpoint_goes_in_several_passes_and_the_row_that_tells_whose_it_is_goes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, store = OneRow(OURS), Page(str(location(tmp_path).location))
    for number in range(3):
        store.create(f"generation-000001-a1/file-{number}", b"{}")
    monkeypatch.setattr("exactlyonce.control.erase._ONE_PASS_SECONDS", -1.0)
    before = len(files(tmp_path))
    for _ in range(3):
        with pytest.raises(StillErasing):
            erased(ledger, store)
        assert len(files(tmp_path)) < before
        before = len(files(tmp_path))
        assert ledger.forgotten == []
    monkeypatch.setattr("exactlyonce.control.erase._ONE_PASS_SECONDS", 60.0)
    erased(ledger, store)
    assert (files(tmp_path), ledger.forgotten) == (set(), [OURS])


def test_an_operator_that_has_lost_the_lease_takes_no_row_away(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path)
    with pytest.raises(NotLeading):
        erased(ledger, store, lambda: False)
    assert ledger.forgotten == []


def decision(number: int) -> ReplayDecision:
    """Return what a replay has decided of ten records of a batch, in a load with the number."""
    ranges = Ranges({Partition("orders", 0): OffsetRange(10 * number, 10 * number + 10)})
    load = Committable(f"exactlyonce:load-{number}", str(number), 10, ranges)
    return ReplayDecision("mine", DecidedBatch(BatchNumber(6), (load,), sink="db.events at fe:8030"))


def test_loads_that_replays_have_decided_and_nobody_has_committed_are_told(tmp_path: Path) -> None:
    """Their ranges may be in the sink or not, and the record of them goes with the ledger's rows."""
    left = erased(OneRow(OURS, decisions=tuple(map(decision, range(7)))), location(tmp_path))
    assert left is not None
    assert left.startswith(
        "Replays have decided 7 loads, and nothing says whether the sink has committed them: look there for their rows"
    )
    assert "exactlyonce:load-0 (transaction 0, 10 rows of orders-0 [0, 10))" in left
    assert "db.events at fe:8030" in left
    assert "load-2" in left
    assert "load-3" not in left, "an event has room for some"
    assert "and 4 more" in left
