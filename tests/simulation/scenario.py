"""What a seed is about: how the stream lands, and which hazards may strike."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit


@dataclass(frozen=True)
class Scenario:
    """What a seed is about: how the stream lands, and which hazards may strike. With `manifest` the sink is files.

    With `quarantine` the stream continues after a batch that fails again and again, with `bisect` without its failing records.
    """

    delivery: Delivery
    commit: Commit
    small_batches: bool
    stateful: bool
    operators: int
    hazards: frozenset[str]
    manifest: bool = False
    quarantine: bool = False
    bisect: bool = False

    @property
    def can_always_shrink(self) -> bool:
        """Whether no batch has to run as it was planned: none keeps state, none lands in part, none is taken beforehand."""
        in_part = self.commit is Commit.PARTITION or self.hazards & {"commit changed", "delivery changed"}
        return self.delivery is not Delivery.AT_MOST_ONCE and not self.stateful and not in_part

    @classmethod
    def draw(cls, dice: random.Random) -> Scenario:
        """Draw a scenario; about half of the hazards strike in each."""
        delivery = dice.choices(list(Delivery), weights=[8, 1, 1])[0]
        stateful = delivery is Delivery.EXACTLY_ONCE and dice.random() < 0.15
        commit = Commit.BATCH if stateful else dice.choice(list(Commit))
        if delivery is not Delivery.EXACTLY_ONCE:
            commit = Commit.BATCH  # drawn all the same, so that a seed's other draws stay
        hazards = frozenset(hazard for hazard in HAZARDS if dice.random() < 0.5)
        if dice.random() < 0.03:
            hazards = frozenset()  # then there is one attempt, and a reason for every other one has to be found
        if "restore" in hazards or "lose ledger" in hazards:
            hazards -= {"edited by hand"}  # or it would depend on the backup whether the edit is still there
        if stateful:
            hazards -= {"retention", "foreign writes", "topics changed"}
        drawn = cls(delivery, commit, dice.random() < 0.3, stateful, dice.choice([1, 1, 2]), hazards)
        if not hazards:
            return drawn
        # Drawn last, so that a seed's other draws stay.
        if dice.random() < 0.5:
            drawn = replace(drawn, hazards=drawn.hazards | {"failover"})
        drawn = replace(drawn, hazards=drawn.hazards | _of_the_source(drawn, dice))
        if drawn.hazards & _HIDDEN_BY_AN_EDIT or delivery is Delivery.AT_MOST_ONCE:
            drawn = replace(drawn, hazards=drawn.hazards - {"edited by hand"})
        is_plain = delivery is Delivery.EXACTLY_ONCE and not stateful
        kind = _peek(dice)
        return drawn if not is_plain else drawn._of_kind(kind)

    def _of_kind(self, kind: float) -> Scenario:
        if kind < 0.15:
            return self.with_manifest()
        if kind < 0.2:
            return self.with_dropped_ledger()
        if kind < 0.3:
            return self.with_changing_delivery()
        if kind < 0.4:
            return self.with_quarantine()
        return self.with_bisection() if kind < 0.45 else self

    def delivered(self, delivery: Delivery) -> Scenario:
        """Return the scenario with this delivery in whole batches, and nothing that one of the deliveries does not have."""
        hidden = _HIDDEN_BY_AN_EDIT | {"edited by hand", "drop ledger"}
        hazards = self.hazards - hidden | {"failover", "database crash"}
        return replace(self, delivery=delivery, commit=Commit.BATCH, stateful=False, manifest=False, hazards=hazards)

    def with_changing_delivery(self) -> Scenario:
        """Return the scenario with a resource whose delivery changes while the stream is suspended."""
        hazards = self.hazards - _HIDDEN_BY_AN_EDIT - {"edited by hand", "drop ledger"}
        return replace(self, stateful=False, manifest=False, hazards=hazards | {"suspend", "delivery changed"})

    def with_dropped_ledger(self) -> Scenario:
        """Return the scenario with a ledger that is dropped; nothing takes from the source or the checkpoint as well."""
        return replace(
            self,
            delivery=Delivery.EXACTLY_ONCE,
            stateful=False,
            manifest=False,
            hazards=(self.hazards & _WITH_A_DROPPED_LEDGER) | {"drop ledger"},
        )

    def with_quarantine(self) -> Scenario:
        """Return the scenario with a record that fails its batch however often it runs, which the stream continues after."""
        return replace(self, stateful=False, quarantine=True, hazards=self.hazards | {"poison"})

    def with_bisection(self) -> Scenario:
        """Return the scenario with records that fail for good, and a stream that continues without those alone."""
        return replace(self.with_quarantine(), bisect=True)

    def with_manifest(self) -> Scenario:
        """Return the scenario with a sink of files; none of the hazards that take back what the ledger has committed."""
        return replace(
            self,
            delivery=Delivery.EXACTLY_ONCE,
            commit=Commit.BATCH,
            stateful=False,
            hazards=self.hazards - _NOT_WITH_A_MANIFEST,
            manifest=True,
        )

    def with_restored_ledger(self) -> Scenario:
        """Return the scenario with a sink of files whose ledger goes back to an earlier state, while the folder stays."""
        return replace(self.with_manifest(), operators=1, hazards=frozenset({"restore", "kill driver"}))


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
    "strike at commit",
    "edited by hand",
    "commit changed",
    "suspend",
    "poison",
    "too large",
    "start over",
)


_HIDDEN_BY_AN_EDIT = frozenset({"truncate", "re-create"})
"""A ledger that was edited by hand halts the stream before it is asked what became of its source, or of a batch that AtMostOnce
has taken: whether that would have been told cannot be seen then.
"""

_NOT_WITH_A_MANIFEST = frozenset(
    {"restore", "failover", "lose ledger", "former life", "start over", "commit changed"} | {"delivery changed"}
)
"""What these take from the ledger stays in the folder: the stream then halts, which seeds of their own find out."""

_WITH_A_DROPPED_LEDGER = frozenset(
    {"kill driver", "kill operator", "freeze driver", "lose driver", "start twice", "task fails late", "lose task"}
    | {
        "cut at commit",
        "database crash",
        "new partition",
        "brokers down",
        "limit changed",
        "strike at commit",
        "suspend",
    }
)
"""What leaves the source and the checkpoint whole, so that an adoption has to end with every record in the sink once."""

SOURCES_HAZARDS = ("leader moves", "truncate", "re-create")
"""What happens to the logs of the source. What was truncated is counted where every record has one effect, and no state."""


def _peek(dice: random.Random) -> float:
    """Return what the dice would draw next, and leave them as they are: so most seeds run as they did before."""
    copy = random.Random()
    copy.setstate(dice.getstate())
    return copy.random()


def _of_the_source(drawn: Scenario, dice: random.Random) -> frozenset[str]:
    hazards = frozenset(hazard for hazard in SOURCES_HAZARDS if dice.random() < 0.5)
    if drawn.stateful or drawn.delivery is not Delivery.EXACTLY_ONCE:
        hazards -= {"truncate", "re-create"}
    return hazards
