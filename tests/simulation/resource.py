"""The stream's resource, as it is at one moment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from exactlyonce.api.checkpoint_retention import GenerationRetention
from exactlyonce.api.ledger_retention import BatchRetention, FailureRetention, LedgerRetention
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.specs import Commit
from tests.simulation.files import MemoryStore

STREAM_ID = "shop/orders"
MOST_FAILURES = 2
"""Of a batch, before a stream with a quarantine continues without it."""

KEEPS_NOTHING = LedgerRetention.model_construct(
    batches=BatchRetention.model_construct(count=0, age=timedelta(0)),
    closed_failures=FailureRetention.model_construct(age=timedelta(0)),
)
KEEPS_NO_GENERATION = GenerationRetention.model_construct(count=0, age=timedelta(0))
"""Ask for less than a resource may ask for: what is left is what a decision may need."""


@dataclass(frozen=True)
class RequestedSpec:
    """What may change of the resource within a run."""

    named: frozenset[str]
    commit: Commit
    limit: int
    annotations: tuple[tuple[str, str], ...] = ()
    delivery: Delivery = Delivery.EXACTLY_ONCE
    quarantine: bool = False
    bisect: bool = False
    former_batch: int | None = None
    """The latest batch of a query whose output the stream continues."""

    @property
    def plan(self) -> str:
        """Return what stands for the driver that would be made of it."""
        return f"{','.join(sorted(self.named))} by {self.commit} {self.delivery}"


def of_poison(requested: RequestedSpec) -> dict[str, object]:
    """Return what the resource says of a batch that fails again and again."""
    return (
        {"maxFailuresPerBatch": MOST_FAILURES, "onPoisonBatch": "Bisect" if requested.bisect else "Quarantine"}
        if requested.quarantine
        else {"maxFailuresPerBatch": 1000}
    )


@cache  # a parsed resource is frozen, there are few, and parsing one costs more than a pass over it
def resource(requested: RequestedSpec, on_truncated: str) -> Stream:
    """Return the resource as a person would have written it."""
    sink: dict[str, object] = {
        "postgres": {"secretRef": {"name": "warehouse"}, "table": "orders", "commit": str(requested.commit)}
    }
    start: dict[str, object] = {}
    if requested.former_batch is not None:
        sink = {"files": {"path": "/output", "continueAfterBatch": requested.former_batch}}
        start = {
            "start": {"from": "Timestamp", "timestamp": "1970-01-01T00:00:00Z"}
        }  # the model starts at the earliest
    return parse_stream(
        {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop", "annotations": dict(requested.annotations)},
            "spec": {
                "delivery": str(requested.delivery),
                "source": {
                    "kafka": {
                        "bootstrapServers": "memory",
                        "topics": sorted(requested.named),
                        "maxOffsetsPerTrigger": requested.limit,
                        **start,
                    },
                    "format": {"schema": "id BIGINT"},
                },
                "sink": sink,
                "checkpoint": {"local": {"path": MemoryStore.location}},
                "recovery": {"onSourceTruncated": on_truncated, **of_poison(requested)},
            },
        },
        "the simulation",
    )
