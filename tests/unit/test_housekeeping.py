"""What a driver deletes beside its batches: until it is ended, whatever fails, and never in a batch's way."""

from __future__ import annotations

import logging
import threading
from typing import cast

import pytest

from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.connector import LedgerAddress
from exactlyonce.ledger.expiry import Deleted
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark import housekeeping
from exactlyonce_spark.housekeeping import HasEnded, Housekeeping, Pauses
from tests.simulation.database import MemoryDatabase, MemoryLedger

PERMIT = Permit("shop/orders", Epoch(1), "claim-1")
PAUSES = Pauses(soon_seconds=1, idle_seconds=20, longest_soon_seconds=3, failed_seconds=30)


class Address:
    """Stands for where a ledger is: notes who opens it, and that it is closed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.ledger = MemoryLedger(MemoryDatabase())
        self.ledger.close = lambda: self.opened.append("closed")  # type: ignore[attr-defined]

    def open(self, application: str, _: object) -> MemoryLedger:
        self.opened.append(application.removeprefix("exactlyonce "))
        return self.ledger


class Waits:
    """Stands for the event that ends the thread: notes each pause and lets it be over at once, so many times."""

    def __init__(self, rounds: int) -> None:
        self.pauses: list[float] = []
        self._rounds = rounds

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return len(self.pauses) > self._rounds


def pauses_of(monkeypatch: pytest.MonkeyPatch, *answers: bool | Exception) -> list[float]:
    """Run until each answer was given, and return how long was waited before and after each."""
    given = iter(answers)

    def remove(_: HasEnded) -> bool:
        answer = next(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keeper = Housekeeping(remove, PAUSES, "the ledger")
    waits = Waits(len(answers))
    monkeypatch.setattr(keeper, "_ended", waits)
    keeper.run()
    return waits.pauses


def test_it_begins_at_once_and_continues_soon_while_there_is_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pauses_of(monkeypatch, True, True, True, False, False, True) == [0, 1, 2, 3, 20, 20, 1]


@pytest.mark.parametrize("problem", [LedgerUnreachable("the database is down"), RuntimeError("nobody thought of this")])
def test_what_fails_is_told_and_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    caplog.set_level(logging.WARNING)
    assert pauses_of(monkeypatch, problem, False) == [0, 30, 20]
    assert str(problem) in caplog.text


@pytest.mark.parametrize(
    ("deleted", "soon"),
    [(Deleted(batches=1000), True), (Deleted(failures=100), True), (Deleted(dead_letters=3), False)],
)
def test_the_ledger_is_opened_for_one_deletion_and_closed_and_more_rows_are_deleted_soon(
    monkeypatch: pytest.MonkeyPatch, deleted: Deleted, soon: bool
) -> None:
    address = Address()

    def delete(ledger: Ledger, *_: object) -> Deleted:
        assert ledger is address.ledger
        return deleted

    monkeypatch.setattr(housekeeping, "delete_expired", delete)
    chore = housekeeping.of_the_ledger(cast("LedgerAddress", address), PERMIT, LedgerRetention())

    assert [chore._remove_once(lambda: False) for _ in range(2)] == [soon, soon]
    assert address.opened == ["shop/orders housekeeping", "closed"] * 2


def test_chores_end_with_the_block() -> None:
    begun = threading.Event()

    def remove(has_ended: HasEnded) -> bool:
        begun.set()
        return False

    chore = Housekeeping(remove, Pauses(0, 0, 0, 0), "the ledger")
    with housekeeping.keeping_house(chore):
        assert begun.wait(10)
        assert not chore._ended.is_set()
    assert chore._ended.is_set()
