"""All that may befall a stream into Doris, in one life of it: kills at every point, dead servers, lost answers, hours."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exactlyonce.reconcile.loop import Done
from testbed.doris.cluster import Fault
from testbed.doris.servers import StandIn
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.doris_rig import HOUR_SECONDS, DorisRig, EventfulCluster, eventful

IDS = 105_000
OF_A_BATCH = 5_000
"""More records than a driver loads by itself, so each task prepares a load. The last batch may be a small one."""
BATCHES = range(1, IDS // OF_A_BATCH)

KILLS = (
    ("batch.decided", "finish.read", "finish.written-again", "finish.recorded", "finish.landed"),
    ("batch.decided", "finish.read"),
    ("batch.decided", "finish.landed"),
    *(("task.prepared",), ("batch.rows-written",), ("land.before-commit",), ("commit.answered",), ("batch.committed",)),
    *(("batch.landed",), ("task.prepared",), ("commit.answered",), ("batch.committed",), ("batch.landed",)),
    ("batch.rows-written",),
)
"""Points at which drivers of one batch die, one after the other: each named one but finish.aborted, since Doris lists no open
loads by HTTP. The rows of the first batch are written again, because hours pass behind its decision."""


@dataclass
class Everything:
    """Which batch is befallen by what, drawn by a seed."""

    server: StandIn
    cluster: EventfulCluster
    seed: int
    killed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    to_backend: int = 0
    """So many requests to frontends are left until the backend is started again."""

    def __post_init__(self) -> None:
        batches = random.Random(self.seed).sample(BATCHES, len(BATCHES))
        self.killed = dict(zip(batches, KILLS, strict=False))
        self.server.happens = self._restart
        self.cluster.at_commit = {batches[0]: self._hours(2)}
        frontend_dies, frontend_returns, backend_dies, load_fails, hours_pass = sorted(batches[len(KILLS) :])[:5]
        self.cluster.at_commit |= {
            frontend_dies: self._frontend_dies,
            frontend_returns: self._fault(Fault.COMMIT_ANSWER_LOST),
            load_fails: self._fault(Fault.PUBLISH_TIMEOUT),
            hours_pass: self._fault(Fault.COMMIT_ANSWER_LOST),
        }
        self.cluster.at_load = {
            frontend_dies: self._fault(Fault.PREPARE_ANSWER_LOST),
            frontend_returns: lambda: self.server.start("frontend"),
            backend_dies: self._backend_dies,
            load_fails: self._fault(Fault.TOO_MANY_VERSIONS, Fault.BACKEND_DIES),
            hours_pass: self._hours(13),
        }

    @property
    def points(self) -> list[str]:
        """The points at which drivers are killed."""
        return [f"{point}@{batch}" for batch, points in self.killed.items() for point in points]

    @property
    def left(self) -> list[object]:
        """What has not happened."""
        return [*self.cluster.at_commit, *self.cluster.at_load, *self.cluster.faults]

    def _hours(self, hours: int) -> Callable[[], None]:
        return lambda: self.cluster.pass_time(hours * HOUR_SECONDS)

    def _fault(self, *faults: Fault) -> Callable[[], None]:
        return lambda: self.cluster.faults.extend(faults)

    def _frontend_dies(self) -> None:
        self.server.stop("frontend")
        self.server.fail_over("frontend-2")

    def _backend_dies(self) -> None:
        self.to_backend = 5
        self.server.stop("backend")

    def _restart(self, name: str, when: str) -> bool:
        if self.to_backend and when == "before":
            self.to_backend -= 1
            if not self.to_backend:
                self.server.start("backend")
        return False


@pytest.fixture
def server() -> Iterator[StandIn]:
    with eventful(frontends=2) as stand_in:
        yield stand_in


@only_in_full
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_ids_are_in_doris_once_whatever_befalls_drivers_and_servers(
    kafka: Kafka,
    postgres_18: Postgres,
    tmp_path: Path,
    name: str,
    server: StandIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twenty kills and more, a frontend and a backend that die, lost answers, and thirteen hours.

    tests/integration/test_doris_stream.py makes the claim for four points, tests/unit/test_doris_batches.py for each of them,
    test_doris_frontends.py for each request.
    """
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    with capsys.disabled():
        print(f"\nDoris and everything: KILL_SEED={seed}")
    assert isinstance(server.cluster, EventfulCluster)
    everything = Everything(server, server.cluster, seed)
    rig = DorisRig(kafka, postgres_18, tmp_path, name, server)
    rig.overrides |= {"spec.source.kafka.maxOffsetsPerTrigger": OF_A_BATCH, "spec.recovery.maxFailuresPerBatch": 50}
    rig.produce(IDS)
    crash = " ".join(f"{point}=kill-driver" for point in everything.points)
    result = rig.run(crash=crash, seconds=60.0 + 60.0 * len(everything.points))
    assert isinstance(result, Done), rig.story()
    fired = [any(rig.folder.glob(f"fired-{place}-*")) for place in range(len(everything.points))]
    missed = [point for point, has_fired in zip(everything.points, fired, strict=True) if not has_fired]
    server.cluster.publish()
    rig.assert_exactly_once()
    assert (missed, everything.left) == ([], []), f"not all of it happened\n{rig.story()}"
    assert len(everything.points) >= 20
    assert {one.server for one in server.seen} == {"frontend", "frontend-2", "backend"}
