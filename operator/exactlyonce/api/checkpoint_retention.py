"""How long Spark's logs and generations that no decision needs any more are kept."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from exactlyonce.api.ledger_retention import Age
from exactlyonce.schema.model import Model, Whole

FEWEST_RETAINED = 100
"""Spark's own default; how far a database may go back and leave state to continue with is promised for so many batches."""


class GenerationRetention(Model):
    """Generations that a newer one has superseded are removed when they are too many or too old, whichever comes first."""

    count: Whole = Field(
        10, ge=1, le=1_000, description="How many superseded generations are kept beside the current one."
    )
    age: Age = Field(
        timedelta(days=30),
        description="How long a superseded generation is kept after the last batch that it planned; the newest one stays "
        "however old.",
    )


class CheckpointRetention(Model):
    """What is kept below the checkpoint's location beside what a restart reads, which is never removed."""

    batches: Whole = Field(
        FEWEST_RETAINED,
        ge=FEWEST_RETAINED,
        le=100_000,
        description="How many batches Spark keeps logs and versions of state for. A stateful query can continue after its "
        "database has gone back by at most this many batches; each version of state takes room.",
    )
    generations: GenerationRetention = Field(
        GenerationRetention(),
        description="Earlier checkpoint directories, kept as evidence. The driver removes the rest.",
    )
