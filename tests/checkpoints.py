"""The golden checkpoints, for tests that read them or start Spark from a copy."""

from __future__ import annotations

from pathlib import Path

from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from tests.simulation.files import MemoryStore

GOLDEN = Path(__file__).parent / "golden" / "checkpoints"
STATES_PAGE = Path(__file__).parent.parent / "docs" / "checkpoint-states.md"


def golden_states() -> list[str]:
    """Return the names of the golden folders."""
    return sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def golden(state: str, path: str) -> bytes:
    """Return the content of one golden file."""
    return (GOLDEN / state / path).read_bytes()


def in_memory(state: str) -> MemoryStore:
    """Return a store that holds a copy of one golden folder."""
    store = MemoryStore()
    for file in (GOLDEN / state).rglob("*"):
        if file.is_file():
            store.files[f"{state}/{file.relative_to(GOLDEN / state).as_posix()}"] = file.read_bytes()
    return store


def readable(store: MemoryStore, state: str) -> Readable:
    """Return what a folder reads as, which must be a checkpoint that Spark continues with."""
    found = read_generation(store, CODEC, state)
    assert isinstance(found, Readable), found
    return found
