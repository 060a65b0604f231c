"""What a seed is about: how the stream lands, and which hazards may strike."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from exactlyonce.api.sink import Commit
from exactlyonce.api.spec import Delivery


@dataclass(frozen=True)
class Scenario:
    """What a seed is about: how the stream lands, and which hazards may strike."""

    delivery: Delivery
    commit: Commit
    small_batches: bool
    stateful: bool
    operators: int
    hazards: frozenset[str]

    @classmethod
    def draw(cls, dice: random.Random) -> Scenario:
        """Draw a scenario; about half of the hazards strike in each."""
        delivery = dice.choices(list(Delivery), weights=[8, 1, 1])[0]
        stateful = delivery is Delivery.EXACTLY_ONCE and dice.random() < 0.15
        commit = Commit.BATCH if stateful else dice.choice(list(Commit))
        if delivery is not Delivery.EXACTLY_ONCE:
            commit = Commit.BATCH  # drawn all the same, so that a seed's other draws stay
        hazards = frozenset(hazard for hazard in HAZARDS if dice.random() < 0.5)
        if stateful:
            hazards -= {"retention", "foreign writes", "topics changed"}
        drawn = cls(delivery, commit, dice.random() < 0.3, stateful, dice.choice([1, 1, 2]), hazards)
        # Drawn last, so that a seed's other draws stay.
        if dice.random() < 0.5:
            drawn = replace(drawn, hazards=drawn.hazards | {"failover"})
        return replace(drawn, hazards=drawn.hazards | _of_the_source(drawn, dice))


HAZARDS = (
    "kill driver",
    "kill operator",
    "freeze driver",
    "lose driver",
    "start twice",
    "task fails late",
    "lose task",
    "cut at commit",
    "database crash",
    "restore",
    "lose checkpoint",
    "tear checkpoint",
    "retention",
    "foreign writes",
    "lose status",
    "new partition",
    "brokers down",
    "topics changed",
    "former life",
    "synchronous_commit off",
    "lose ledger",
    "limit changed",
)


SOURCES_HAZARDS = ("leader moves", "truncate", "re-create")
"""What happens to the logs of the source. What was truncated is counted where every record has one effect, and no state."""


def _of_the_source(drawn: Scenario, dice: random.Random) -> frozenset[str]:
    hazards = frozenset(hazard for hazard in SOURCES_HAZARDS if dice.random() < 0.5)
    if drawn.stateful or drawn.delivery is not Delivery.EXACTLY_ONCE:
        hazards -= {"truncate", "re-create"}
    return hazards
