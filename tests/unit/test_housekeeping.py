"""What a driver deletes beside its batches: until it is ended, whatever fails, and never in a batch's way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from exactlyonce.api.ledger_retention import LedgerRetention
from exactlyonce.errors import LedgerUnreachable
from exactlyonce.ledger.expiry import Deleted
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark import housekeeping
from exactlyonce_spark.housekeeping import Housekeeping, Pauses
from tests.simulation.database import MemoryDatabase, MemoryLedger

PERMIT = Permit("shop/orders", Epoch(1), "claim-1")
PAUSES = Pauses(more_seconds=1, idle_seconds=2, failed_seconds=3)


class Waits:
    """Stands for the event that ends the thread: notes each pause and lets it be over at once, so many times."""

    def __init__(self, rounds: int) -> None:
        self.pauses: list[float] = []
        self._rounds = rounds

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return len(self.pauses) > self._rounds


def pauses_of(monkeypatch: pytest.MonkeyPatch, *answers: Deleted | Exception) -> list[float]:
    """Run until each answer was given, and return how long was waited before and after each."""
    given = iter(answers)

    def delete(*_: object) -> Deleted:
        answer = next(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def opened() -> AbstractContextManager[Ledger]:
        return nullcontext(MemoryLedger(MemoryDatabase()))

    monkeypatch.setattr(housekeeping, "delete_expired", delete)
    keeper = Housekeeping(opened, PERMIT, LedgerRetention(), PAUSES)
    waits = Waits(len(answers))
    monkeypatch.setattr(keeper, "_ended", waits)
    keeper.run()
    return waits.pauses


def test_it_begins_at_once_and_goes_on_sooner_while_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    some, few = Deleted(batches=1000), Deleted(batches=3)
    assert pauses_of(monkeypatch, some, Deleted(failures=500), Deleted(dead_letters=100), few, Deleted()) == [
        0, 1, 1, 1, 2, 2
    ]  # fmt: skip


@pytest.mark.parametrize("problem", [LedgerUnreachable("the database is down"), RuntimeError("nobody thought of this")])
def test_what_fails_is_told_and_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    caplog.set_level(logging.WARNING)
    assert pauses_of(monkeypatch, problem, Deleted()) == [0, 3, 2]
    assert str(problem) in caplog.text


def test_no_connection_is_kept_between_two_deletions() -> None:
    opened: list[str] = []

    @contextmanager
    def ledger() -> Iterator[Ledger]:
        opened.append("opened")
        yield MemoryLedger(MemoryDatabase())
        opened.append("closed")
        if len(opened) == 4:
            keeper.end()

    keeper = Housekeeping(ledger, PERMIT, LedgerRetention(), Pauses(0, 0, 0))
    keeper.run()
    assert opened == ["opened", "closed"] * 2
