"""The stream's resource, as it is at one moment of a run."""

from __future__ import annotations

from functools import cache

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.sink import Commit
from exactlyonce.api.spec import Delivery
from tests.simulation.files import MemoryStore

STREAM_ID = "shop/orders"


@cache  # a parsed resource is frozen, there are few, and parsing one costs more than a pass over it
def resource(topics: tuple[str, ...], delivery: Delivery, commit: Commit, on_truncated: str) -> Stream:
    """Return the resource as a person would have written it."""
    postgres = {"secretRef": {"name": "warehouse"}, "table": "orders", "commit": str(commit)}
    return parse_stream(
        {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {
                "delivery": str(delivery),
                "source": {
                    "kafka": {"bootstrapServers": "memory", "topics": list(topics)},
                    "format": {"schema": "id BIGINT"},
                },
                "sink": {"postgres": postgres},
                "checkpoint": {"location": MemoryStore.location},
                "recovery": {"onSourceTruncated": on_truncated, "maxFailuresPerBatch": 1000},
            },
        },
        "the simulation",
    )
