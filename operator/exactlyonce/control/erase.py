"""`deletionPolicy: Delete`: take away a stream's ledger rows and its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exactlyonce.api.resource import parse_stream
from exactlyonce.checkpoint.generation import MARKER, list_generations
from exactlyonce.control.parts import ClusterParts


def erase(parts: ClusterParts, document: Mapping[str, Any]) -> str | None:
    """Take away the checkpoint, then the ledger's rows; done again, it finds nothing and is content.

    The rows go last: they tell what the checkpoint is, if this is interrupted. Returns a sentence for what is left behind,
    which is what stands on a volume: only pods of the stream reach that, and it has none any more.

    Raises:
        ExactlyOnceError: if the spec is invalid, a secret is missing, or a store does not answer.
    """
    stream = parse_stream(document, "the resource")
    ledger, store = parts.stores_of(stream)
    claim = stream.spec.checkpoint.persistent_volume_claim
    if claim is not None:
        ledger.forget(stream.stream_id)
        return (
            f"The checkpoint stays in {store.location} on the claim {claim.claim_name}, which the operator does not reach; "
            "delete that folder, or the claim, before another stream uses it."
        )
    for generation in list_generations(store):
        store.remove(generation.folder)
    store.remove(MARKER)
    ledger.forget(stream.stream_id)
    return None
