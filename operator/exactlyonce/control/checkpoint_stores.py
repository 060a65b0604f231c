"""With whose login the operator reaches a checkpoint, a ledger or a source; some checkpoints it leaves to the stream's pods."""

from __future__ import annotations

from collections.abc import Mapping

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.ledger import LedgerInUse
from exactlyonce.api.source import Source
from exactlyonce.assembly import Secrets, checkpoint_store, source_address
from exactlyonce.checkpoint.locations import StoreInPods, names_login
from exactlyonce.checkpoint.store import ErasableStore, SizedStore
from exactlyonce.connectors.registry import LEDGERS
from exactlyonce.control.operator_locations import OperatorLocations
from exactlyonce.control.operator_sources import OperatorSources
from exactlyonce.errors import Refused
from exactlyonce.schema.model import field_name
from exactlyonce.schema.places import S3Place
from exactlyonce.source.connector import SourceAddress
from exactlyonce.source.counted_files import CountsFiles, FileCounter


class LocationOutOfReach(Refused):
    """A checkpoint or a ledger is kept where the operator's pod does not reach."""


def operators_store(
    checkpoint: Checkpoint, namespace: str, secret: Mapping[str, str], allowed: OperatorLocations
) -> ErasableStore:
    """Return the store of a checkpoint as the operator has it; `secret` holds what `secretRef` names, if anything.

    The operator's own login is a deputy's: it may be good for the folders of every tenant. So it serves what an administrator
    allowed and nothing else. A secret without a login, such as one with a certificate alone, is not a login either.

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
    if is_in_reach(checkpoint.s3, namespace, secret, allowed):
        return checkpoint_store(checkpoint, lambda reference: secret)
    return StoreInPods(
        checkpoint.location,
        f"checkpoint.s3.secretRef names no login, and checkpoints.locations does not allow namespace {namespace} that location",
    )


def require_ledger_in_reach(
    ledger: LedgerInUse, namespace: str, secret: Mapping[str, str], allowed: OperatorLocations
) -> None:
    """Require that the operator may reach a ledger in a folder; `secret` is what its `secretRef` names, if anything.

    A ledger cannot be left to the stream's own pods, as a checkpoint can: the epoch is raised in it before there is one.

    Raises:
        LocationOutOfReach: if it is on no service that the operator reaches, or its own login is not meant for it.
        SecretMissing: if the secret holds one half of a login.
    """
    folder = ledger.folder
    if folder is None:
        return
    if isinstance(folder, str):
        raise LocationOutOfReach(
            f"The ledger at {folder} is in a folder, which the operator cannot see from its own pod; give spec.ledger "
            f"({', '.join(field_name(name) for name in LEDGERS)}) in a place that it reaches over the network."
        )
    if not is_in_reach(folder, namespace, secret, allowed):
        raise LocationOutOfReach(
            f"The operator may not read the ledger at {folder.location}: {ledger.named_at} names no login in a secretRef, and "
            f"checkpoints.locations does not allow namespace {namespace} that location. Name a secret, or ask an administrator."
        )


def source_in_reach(source: Source, namespace: str, secrets: Secrets, allowed: OperatorSources) -> SourceAddress:
    """Return where a source is, with the stream's own login, or with the operator's where an administrator allowed that.

    The operator's login may be good for the sources of every tenant, so nothing that a stream names is reached with it unasked.

    Raises:
        LocationOutOfReach: if the stream has no login, the source asks for one, and the operator's is not meant for it.
        SecretMissing: if a secret is not there, or lacks what is needed.
    """
    address = source_address(source, secrets)
    for place in address.reached_by_process:
        if not allowed.allow(namespace, place):
            at = "" if place.endpoint is None else f" at {place.endpoint}"
            raise LocationOutOfReach(
                f"The operator may not reach {place.name} of {address.shown}: spec.source.{field_name(source.connector)} names "
                f"no login in a secretRef, and sources.locations does not allow namespace {namespace} that name{at}. "
                "Name a secret, or ask an administrator; what can be allowed is a data stream by streamArn, and a lease table."
            )
    return address


def measured_beside(checkpoints: ErasableStore, source: SourceAddress) -> tuple[SizedStore | None, FileCounter | None]:
    """Return what the monitor asks of a stream beside the rounds: how large its checkpoint is, and how many files wait.

    None where the store is not one that tells its size, and where the source is no folder.
    """
    sized = checkpoints if isinstance(checkpoints, SizedStore) else None
    return sized, source.counter(checkpoints) if isinstance(source, CountsFiles) else None


def is_in_reach(place: S3Place, namespace: str, secret: Mapping[str, str], allowed: OperatorLocations) -> bool:
    """Return whether the operator has a login for a place: the stream's own, or its own where an administrator allowed that.

    Raises:
        SecretMissing: if the secret holds one half of a login.
    """
    return names_login(place, secret) or allowed.allow(namespace, place)
