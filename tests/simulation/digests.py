"""Print what a few seeds of each kind of world did, a digest per run, so that two processes can be compared.

python -m tests.simulation.digests
"""

from __future__ import annotations

import hashlib
import logging

from tests.simulation.folder_world import FolderWorld
from tests.simulation.kafka_world import KafkaWorld
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.manifest_log_world import ManifestLogWorld
from tests.simulation.oracle import run_seed
from tests.simulation.scenario import Scenario
from tests.simulation.search import scenario_of
from tests.simulation.shared_labels import SharedLabelsWorld
from tests.simulation.staged_world import StagedWorld
from tests.simulation.two_phase_world import TwoPhaseLogWorld, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld

KINDS = (
    *(SimulatedWorld, LogWorld, ManifestLogWorld, KinesisWorld, FolderWorld),
    *(TwoPhaseWorld, TwoPhaseLogWorld, SharedLabelsWorld, StagedWorld, KafkaWorld),
)
SEEDS = range(2)
RESHARDED = "a_shard_appears_before_its_descendants_are_listed"
"""A seed of this scenario once had as many runs as there are orders of the shards in a set."""


def main() -> None:
    """Print the digests."""
    logging.disable()
    runs: list[tuple[type[SimulatedWorld], int, Scenario | None]] = [
        (kind, seed, None) for kind in KINDS for seed in SEEDS
    ]
    runs += [(KinesisWorld, seed, scenario_of(RESHARDED, seed)) for seed in (33, 34)]
    for kind, seed, scenario in runs:
        print(kind.__name__, seed, digest_of(kind, seed, scenario))


def digest_of(kind: type[SimulatedWorld], seed: int, scenario: Scenario | None = None) -> str:
    """Return the digest of what a run did."""
    trace = "\n".join(run_seed(seed, scenario, kind).simulation.trace)
    return hashlib.sha256(trace.encode()).hexdigest()


if __name__ == "__main__":
    main()
