"""With whose login the operator reaches a checkpoint, or that it leaves it to the stream's own pods."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.checkpoint.locations import StoreInPods, names_login, open_store
from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.control.operator_locations import OperatorLocations
from exactlyonce.errors import Refused


class LocationOutOfReach(Refused):
    """The checkpoint is kept where the operator's pod does not reach."""


def operators_store(
    checkpoint: Checkpoint, namespace: str, secret: Mapping[str, str], allowed: OperatorLocations
) -> ErasableStore:
    """Return the store of a checkpoint as the operator has it; `secret` holds what `secretRef` names, if anything.

    The operator's own login is a deputy's: it may be good for the folders of every tenant. So it serves what an administrator
    allowed and nothing else. A secret that holds no login, such as one with a certificate alone, is no login either.

    Raises:
        LocationOutOfReach: if it is a folder of no volume.
        SecretMissing: if the secret holds one half of a login.
    """
    if checkpoint.volume is not None:
        return StoreInPods(checkpoint.location, "it is on a volume")
    if checkpoint.s3 is None:
        raise LocationOutOfReach(
            f"The checkpoint location {checkpoint.location} is a folder, which the operator cannot see from its own pod; "
            "give checkpoint.s3, or checkpoint.volume with the claim that the folder is on."
        )
    if names_login(checkpoint.s3, secret) or allowed.allow(namespace, checkpoint.s3):
        return open_store(checkpoint, secret)
    return StoreInPods(
        checkpoint.location,
        f"checkpoint.s3.secretRef names no login, and checkpoints.locations does not allow namespace {namespace} that location",
    )
