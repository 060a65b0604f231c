"""What a resource asks for, as hashes: of which driver it would have, and of all that a person wrote. Performs no I/O."""

from __future__ import annotations

import hashlib
import json

from exactlyonce.api.field_classes import OPERATORS_OWN
from exactlyonce.api.resource import ASKED_OF_A_PASS, Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.status import StreamStatus


def _hash_of(*hashed: object) -> str:
    """Return a hash that is another one where any of these is."""
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()[:16]


def driver_plan(spec: StreamSpec) -> str:
    """Return what stands for the driver that a spec asks for, from what its user wrote alone.

    What the operator adds (its default image, the form of its manifests) is left out: an upgrade restarts no driver.
    """
    return _hash_of(spec.differences(*OPERATORS_OWN))


def what_a_person_asks(stream: Stream) -> str:
    """Return a hash of what a person wrote; a default that the definition fills in is not part of it."""
    annotations = stream.metadata.annotations
    asked = {key: annotations[key] for key in ASKED_OF_A_PASS if key in annotations}
    return _hash_of(stream.spec.differences(), asked)


def is_last_valid(made: Stream, status: StreamStatus) -> bool:
    """Whether nothing valid has been asked for since the latest attempt was made, but to rest or not to."""
    either = [
        made.model_copy(update={"spec": made.spec.model_copy(update={"suspend": rests})}) for rests in (True, False)
    ]
    return status.acted_on in [what_a_person_asks(stream) for stream in either]
