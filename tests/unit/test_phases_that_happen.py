"""Every transition of phases is found by passes over streams to which anything may happen, and the table has no other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.api.attempt_status import DriverTask
from exactlyonce.api.phases import TRANSITIONS, TransitionReason
from exactlyonce.api.status import Phase
from exactlyonce.cli.run import start_over
from exactlyonce.errors import Refused, SourceUnreachable
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.launch.port import DriverPod, Ended, Gone, LaunchFailed, ManifestRefused, Running
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile import phase_check
from exactlyonce.reconcile.loop import Wanted
from tests.resource_documents import DORIS
from tests.unit.life_in_memory import BAD_IMAGE, GOOD_IMAGE, Life, updated
from tests.unit.passes import Died, Machine

Seen = tuple[Phase, Phase, TransitionReason | None]

STEPS, RARELY = 30, 3
SEEDS = (
    4,
    33,
    39,
    41,
    49,
    65,
    69,
    90,
    100,
    102,
    120,
    137,
    176,
    191,
    204,
    251,
    272,
    286,
    392,
    439,
    440,
    442,
    444,
    493,
    526,
    568,
    591,
    737,
    757,
)
"""Of walks that meet every transition that is not rare; `python -m tests.unit.test_phases_that_happen 800` searches again."""
CRASHED = Ended("reaped", None, "It crashed.")
GONE = Gone("The image cannot be pulled", "ImageNotPullable")


class Walk:
    """One stream in a cluster, to which things happen at random; each walk is repeated by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.life = updated() if self.random.random() < 0.4 else Life()
        if self.random.random() < 0.3:
            self.life = Life(**{"spec.sink": {"doris": DORIS}})
        self.machine = self.life.machine
        self.machine.in_pod = self.random.random() < 0.3

    def run(self) -> None:
        """Let things happen, with passes between them."""
        for _ in range(STEPS):
            self.random.choice(EVENTS)(self)
            for _ in range(self.random.randint(0, 2)):
                self.one_pass()

    def one_pass(self) -> None:
        """Run a pass, in which the operator may die."""
        if self.random.random() < 0.1:
            self.machine.dies_before = len(self.machine.effects) + self.random.randint(0, 4)
        with suppress(Died):
            self.life.run_pass()
        self.machine.dies_before = None

    @property
    def attempt(self) -> Epoch:
        return Epoch(self.life.status.attempt)

    def driver(self, state: Any) -> None:
        """Let the driver of the latest attempt be in a state, if it was ever started."""
        if self.attempt in self.life.pods.states:
            pod = DriverPod(f"orders-{self.attempt}", self.life.pods.images.get(self.attempt))
            known = self.life.pods.states[self.attempt]
            word = known.pod.word if isinstance(known, Running | Ended | Gone) and known.pod else None
            self.life.pods.states[self.attempt] = replace(state, pod=replace(pod, word=word))

    def ends(self) -> None:
        """The driver ends, one way or another."""
        words = [LastMessage(ending, f"it {ending}.", 1) for ending in Ending]
        self.driver(self.random.choice([CRASHED, GONE, *(Ended("reaped", it, "it ended") for it in words)]))

    def lives(self) -> None:
        """The driver is on its way, runs or hangs."""
        runs = Running("in memory")
        self.driver(self.random.choice([runs, runs, replace(runs, started=False), replace(runs, hangs="it hangs")]))

    def decides(self) -> None:
        """The driver decides a batch, and has not landed it."""
        if self.life.driver_is_there() and self.begins():
            self.life.decide_batch()

    def leaves_a_decision(self) -> None:
        """A driver into Doris dies over a decided batch, and the stream is perhaps suspended; one without a query ends well."""
        self.decides()
        self.driver(CRASHED)
        if self.random.random() < 0.5:
            self.rests()
        for _ in range(3):
            self.one_pass()
        orders = self.life.pods.orders.get(self.attempt)
        if orders is not None and orders.task is DriverTask.FINISH_ONLY:
            self.driver(Ended("reaped", LastMessage(Ending.FINISHED, "It has landed."), "it ended"))

    def begins(self) -> bool:
        """Whether the driver of the latest attempt begins a batch."""
        row = self.machine.ledger.view("shop/orders")
        orders = self.life.pods.orders.get(self.attempt)
        if orders is None or row is None or row.decided is not None or row.stream.checkpoint_path is None:
            return False
        if orders.task is DriverTask.FINISH_ONLY or (row.stream.epoch, row.stream.claim) != (self.attempt, None):
            return False
        self.life.begin_batch(self.attempt)
        return True

    def speaks(self) -> None:
        """The reconciliation in the pod has ended."""
        word = self.random.choice([PodVerdict(Outcome.LAUNCHES, "Resumes.", "Resume"), *_WORDS])
        if self.machine.in_pod and self.attempt in self.life.pods.states:
            pod = DriverPod(f"orders-{self.attempt}", None, word=word)
            starts = word.outcome is Outcome.LAUNCHES
            self.life.pods.states[self.attempt] = Running("here", pod=pod) if starts else Gone("no start", pod=pod)

    def rests(self) -> None:
        self.life.change(**{"spec.suspend": self.life.resource["spec"].get("suspend") is not True})

    def changes(self) -> None:
        changes: list[dict[str, Any]] = [
            {"spec.image": BAD_IMAGE},
            {"spec.image": GOOD_IMAGE},
            {"spec.restartNonce": str(self.random.random())},
            {"spec.delivery": self.random.choice(["Sometimes", "ExactlyOnce"])},
            {"spec.driver": {"serviceAccountName": self.random.choice(["missing", "spark"])}},
        ]
        self.life.missing_account = "missing"
        self.life.change(**self.random.choice(changes))

    def breaks(self) -> None:
        """Something does not answer, or refuses, until it is mended."""
        pods = self.life.pods
        pods.refusal = self.random.choice([LaunchFailed("no room"), ManifestRefused("no such volume")])

    def source(self) -> None:
        self.machine.owner = self.random.choice([Owner("cluster-1", "uid-1"), Owner("cluster-2", "uid-2")])

    def recreates(self) -> None:
        self.machine.topic.recreate("orders")

    def cannot_start(self) -> None:
        """Every driver of a changed resource ends before it has started."""
        self.life.change(**{"spec.image": BAD_IMAGE, "spec.suspend": False})
        for _ in range(6):
            if self.life.pods.images.get(self.attempt) == BAD_IMAGE:
                self.driver(GONE)
            elif self.attempt in self.life.pods.drained:
                self.driver(Ended("reaped", LastMessage(Ending.DRAINED, "It has drained."), "it ended"))
            self.one_pass()
            self.waits()

    def answers_not(self) -> None:
        """Something does not answer during a pass, or refuses for good."""
        problem = self.random.choice(
            [SourceUnreachable("The source does not answer."), Refused("The login is refused.")]
        )

        def raises(*_: object, **__: object) -> Any:
            raise problem

        ledger, topic, pods = self.machine.ledger, self.machine.topic, self.life.pods
        what = self.random.choice([(topic, "view"), (pods, "drain"), (pods, "state_of"), (ledger, "prepare")])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*what, raises)
            self.one_pass()

    def is_unusable(self) -> None:
        """The spec is invalid, and no attempt is there whose spec could be kept to; then it rests, or its driver ends."""
        self.life.change(**{"spec.delivery": "Sometimes", "spec.suspend": self.random.random() < 0.5})
        self.life.pods.specs.clear()
        self.random.choice([Walk.ends, Walk.loses_traces, Walk.lives])(self)
        self.one_pass()

    def mends(self) -> None:
        self.life.pods.refusal = None

    def loses_status(self) -> None:
        self.life.resource.pop("status", None)

    def loses_traces(self) -> None:
        self.life.pods.states.pop(self.attempt, None)

    def runs_spark(self) -> None:
        """The driver plans a batch, so that what it was made of has run."""
        self.begins()

    def waits(self) -> None:
        self.machine.now += timedelta(hours=2)


_WORDS = [PodVerdict(outcome, "It says so.") for outcome in Outcome if outcome is not Outcome.LAUNCHES]
EVENTS: list[Callable[[Walk], None]] = [
    Walk.ends, Walk.ends, Walk.lives, Walk.lives, Walk.speaks, Walk.rests, Walk.changes, Walk.changes,
    Walk.leaves_a_decision, Walk.leaves_a_decision,
    Walk.breaks, Walk.source, Walk.recreates, Walk.cannot_start, Walk.answers_not, Walk.mends, Walk.mends,
    Walk.is_unusable, Walk.loses_status, Walk.loses_traces, Walk.runs_spark, Walk.waits, Walk.waits, Walk.waits,
]  # fmt: skip


def local_runs() -> None:
    """Run streams by `exactlyonce run`, again and again, after whatever their driver has come to."""
    for ending in (*Ending, None):
        machine = Machine()
        for _ in range(8):
            start_over(SimpleNamespace(statuses=machine.statuses))  # type: ignore[arg-type] # the statuses are all that it takes
            machine.run_pass()
            machine.run_pass()
            if machine.statuses.status.attempt:
                machine.end(Epoch(machine.statuses.status.attempt), ending)
            machine.run_pass(Wanted.REST if ending is None else Wanted.RUN)
            machine.now += timedelta(hours=2)


def pod_runs() -> None:
    """Let the reconciliation in a pod end before it has decided anything."""
    for word in _WORDS:
        life = Life()
        life.machine.in_pod = True
        life.run_pass()
        state = Gone("no start", pod=DriverPod("orders-1", None, word=word))
        life.pods.states[Epoch(life.status.attempt)] = state
        life.run_pass()


@contextmanager
def noted() -> Iterator[set[Seen]]:
    """Note every transition that is written meanwhile, whether the table has it or not."""
    seen: set[Seen] = set()

    def note(before: Phase, after: Phase, reason: TransitionReason | None) -> bool:
        if before is not after:
            seen.add((before, after, reason))
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phase_check, "is_known", note)
        yield seen


def test_the_table_has_every_transition_that_happens_and_marks_those_that_hardly_do() -> None:
    table = {(before, it.after, it.reason) for it in TRANSITIONS for before in it.before}
    rare = {(before, it.after, it.reason) for it in TRANSITIONS for before in it.rare}
    with noted() as seen:
        for seed in SEEDS:
            Walk(seed).run()
        local_runs()
        pod_runs()
    assert sorted(map(str, seen - table)) == [], "each write of these is told as a defect"
    assert sorted(map(str, table - rare - seen)) == [], (
        "nothing produces these: take them out, mark them, or search again"
    )


def search(walks: int) -> tuple[list[int], Counter[Seen]]:
    """Return a few seeds whose walks write whatever at least RARELY walks do, and how many walks write each."""
    found: dict[int, set[Seen]] = {}
    for seed in range(walks):
        with noted() as found[seed]:
            Walk(seed).run()
    counted = Counter(transition for seen in found.values() for transition in seen)
    left, seeds = {transition for transition, walks_of_it in counted.items() if walks_of_it >= RARELY}, []
    while left:
        seeds.append(max(found, key=lambda seed: len(found[seed] & left)))
        left -= found[seeds[-1]]
    return sorted(seeds), counted


if __name__ == "__main__":
    import logging
    import sys

    logging.disable()
    chosen, counted = search(int(sys.argv[1]))
    for transition, count in sorted(counted.items(), key=str):
        print(count, *transition)
    print("SEEDS =", tuple(chosen))
