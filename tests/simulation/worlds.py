"""Which suite each kind of world belongs to (tests/suites.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.simulation.beside_world import BesideWorld
from tests.simulation.files_replay_world import FilesReplayLogWorld, FilesReplayWorld
from tests.simulation.folder_world import FolderWorld
from tests.simulation.full_log_world import FullLogWorld
from tests.simulation.give_up_world import GiveUpWorld
from tests.simulation.kafka_world import KafkaWorld
from tests.simulation.kinesis_replay_world import KinesisReplayWorld
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.letters_world import LettersWorld
from tests.simulation.loads_replay_world import LoadsReplayLogWorld, LoadsReplayWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.manifest_log_world import ManifestLogWorld
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.search import kind_of_world
from tests.simulation.shared_labels import SharedLabelsWorld
from tests.simulation.snapshot_world import SnapshotWorld
from tests.simulation.staged_world import StagedLogWorld, StagedWorld
from tests.simulation.table_replay_world import SnapshotReplayWorld, TableReplayWorld
from tests.simulation.table_world import TableWorld
from tests.simulation.two_phase_world import TwoPhaseLogWorld, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld
from tests.suites import of_suite

SUITES: Mapping[str, tuple[type[SimulatedWorld], ...]] = {
    "protocol": (SimulatedWorld, ReplayWorld, LettersWorld, BesideWorld, GiveUpWorld),
    "kafka": (KafkaWorld,),
    "files": (FolderWorld, FilesReplayWorld, FilesReplayLogWorld, ManifestLogWorld),
    "delta": (TableWorld, TableReplayWorld),
    "iceberg": (SnapshotWorld, SnapshotReplayWorld),
    "doris": (
        *(TwoPhaseWorld, TwoPhaseLogWorld, SharedLabelsWorld, StagedWorld, StagedLogWorld),
        *(LoadsReplayWorld, LoadsReplayLogWorld),
    ),
    "kinesis": (KinesisWorld, KinesisReplayWorld),
    "object_log": (LogWorld, FullLogWorld),
}


def suite_of_world(kind: type[SimulatedWorld]) -> str:
    """Return the suite of a kind of world."""
    (found,) = [suite for suite, kinds in SUITES.items() if kind in kinds]
    return found


def mutations_of_suites(names: Iterable[str]) -> list[Any]:
    """Return mutations as parameters, each marked as of the suite of the world in which it is searched for."""
    return [pytest.param(name, marks=of_suite(suite_of_world(kind_of_world(name)))) for name in names]


def in_their_suites(kinds: Iterable[type[SimulatedWorld]]) -> list[Any]:
    """Return kinds of worlds as parameters, each marked as of its suite, but for those of `protocol`, which stay unmarked."""
    suites = [(kind, suite_of_world(kind)) for kind in kinds]
    return [kind if suite == "protocol" else pytest.param(kind, marks=of_suite(suite)) for kind, suite in suites]
