"""A world in which a person gives up what is in quarantine, and takes it back, while replays run that have taken it."""

from __future__ import annotations

import random
from collections.abc import Hashable
from datetime import UTC, datetime
from functools import partial

from exactlyonce.ledger.giving_up import GivenUp, give_up_ranges, take_back_ranges
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from tests.simulation.claims import records_of
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process

MOST_PEOPLE = 20
_FORGOTTEN = {"restore", "failover", "database crash", "start over", "lose ledger", "truncate", "re-create"}
"""What makes a ledger forget what a person was told, or the stream read its records again."""
_TOLD = GivenUp("alice", datetime(2026, 1, 31, tzinfo=UTC), "nothing can replay it")


class GiveUpWorld(ReplayWorld):
    """A world of replays and of people who give ranges up; `told` are records of which one was told that they are given up."""

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self._dice = random.Random(f"gives up {seed}")
        self.people: list[Process] = []
        self.told: set[Hashable] = set()
        self.taken_back: set[Hashable] = set()

    def strike_sink(self) -> None:
        """Somebody gives up what is in quarantine, or takes back what was given up."""
        super().strike_sink()
        if not self.calm and len(self.people) < MOST_PEOPLE and self._dice.random() < 0.02:
            held, given_up = self.in_quarantine(), self.rows_with({FailureStatus.GIVEN_UP})
            if held and self._dice.random() < 0.7:
                self._send(partial(self._give_up, self._dice.sample(held, self._dice.randint(1, len(held)))))
            elif given_up:
                self._send(partial(self._take_back, given_up))

    def _send(self, act: partial[None]) -> None:
        process = self.new_process(f"person {len(self.people) + 1}")
        self.people.append(process)
        self.compactors.append(process)
        self.simulation.spawn(process, process.name, act)

    def _give_up(self, shown: list[FailureRow]) -> None:
        for row in give_up_ranges(self.ledger(), STREAM_ID, shown, _TOLD).rows:
            self.told |= records_of(self, row)

    def _take_back(self, shown: tuple[FailureRow, ...]) -> None:
        # One may be told of a give-up only after another one has taken the range back.
        self.taken_back |= {record for row in shown for record in records_of(self, row)}
        take_back_ranges(self.ledger(), STREAM_ID, shown)

    def _read_again(self) -> set[Hashable]:
        """Return the records that the stream has read again since they failed; the oracle counts those by itself."""
        return {record for row in self.rows_with({FailureStatus.SUPERSEDED}) for record in records_of(self, row)}

    def wrong_since_commit(self) -> str | None:
        """A record has landed of which somebody was told that it is given up."""
        landed = {record for record in self.told - self.taken_back if self.database.tables.target[record]}
        landed -= self._read_again()
        if landed and not self.journal.has_struck(_FORGOTTEN):
            return f"given up, and a replay has landed it: {sorted(landed, key=str)}"
        return super().wrong_since_commit()
