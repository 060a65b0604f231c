"""The stream's resource, as it is at one moment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from exactlyonce.api.ledger_retention import BatchRetention, FailureRetention, LedgerRetention
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from tests.simulation.files import MemoryStore

STREAM_ID = "shop/orders"
KEEPS_NOTHING = LedgerRetention.model_construct(
    batches=BatchRetention.model_construct(count=0, age=timedelta(0)),
    closed_failures=FailureRetention.model_construct(age=timedelta(0)),
)
"""Asks for less than a resource may ask for: what is left is what a decision may need."""


@dataclass(frozen=True)
class Asked:
    """What may change of the resource within a run."""

    named: frozenset[str]
    commit: Commit
    limit: int
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def plan(self) -> str:
        """Return what stands for the driver that would be made of it."""
        return f"{','.join(sorted(self.named))} by {self.commit}"


@cache  # a parsed resource is frozen, there are few, and parsing one costs more than a pass over it
def resource(asked: Asked, delivery: Delivery, on_truncated: str) -> Stream:
    """Return the resource as a person would have written it."""
    postgres = {"secretRef": {"name": "warehouse"}, "table": "orders", "commit": str(asked.commit)}
    return parse_stream(
        {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop", "annotations": dict(asked.annotations)},
            "spec": {
                "delivery": str(delivery),
                "source": {
                    "kafka": {
                        "bootstrapServers": "memory",
                        "topics": sorted(asked.named),
                        "maxOffsetsPerTrigger": asked.limit,
                    },
                    "format": {"schema": "id BIGINT"},
                },
                "sink": {"postgres": postgres},
                "checkpoint": {"local": {"path": MemoryStore.location}},
                "recovery": {"onSourceTruncated": on_truncated, "maxFailuresPerBatch": 1000},
            },
        },
        "the simulation",
    )
