"""What a person asks of a stream by a command, with that person's rights: to rest, to continue, to start another driver.

Each is a patch of the spec that names the generation it was made of: whatever somebody else has changed meanwhile is looked
at again, and never overwritten. The operator does the rest. `outcome` tells from the status how far it has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exactlyonce.api.status import Phase
from exactlyonce.control.cluster_reader import ClusterReader
from exactlyonce.errors import Refused
from exactlyonce.schema.model import LARGEST

_TRIES = 3

Stream = Mapping[str, Any]


class AlreadySo(Refused):
    """The stream is as it is asked to be, so that nothing was changed."""


class WishRefused(Refused):
    """The stream cannot be changed so."""


class Wish(StrEnum):
    """What may be asked of a stream."""

    SUSPEND = "suspend"
    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Wished:
    """What was asked for: the stream as it is stored since, and the latest attempt of that moment."""

    wish: Wish
    stream: Stream
    attempt: int

    @property
    def generation(self) -> int:
        """The generation of the resource from which on the wish is in it."""
        return int(self.stream["metadata"]["generation"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a wish ended: fulfilled, or not, with what the stream says of it."""

    fulfilled: bool
    words: str


def record_wish(cluster: ClusterReader, namespace: str, name: str, wish: Wish) -> Wished:
    """Change the spec of a stream.

    Raises:
        AlreadySo, WishRefused: if there is nothing to change, or it may not be changed so.
        ReadRefused, ClusterSilent: if the stream is not there, or this person may not change it; or nobody answers.
    """
    for _ in range(_TRIES):
        before = cluster.stream(namespace, name)
        changes = changed_spec(before, wish)
        after = cluster.patch_spec(before, changes, str(wish))
        if after is not None:
            return Wished(wish, after, attempt_of(after))
    raise WishRefused(
        f"{namespace}/{name} is being changed by somebody else all the time; nothing was changed: try again."
    )


def changed_spec(stream: Stream, wish: Wish) -> dict[str, Any]:
    """Return the fields of the spec that fulfil a wish. Performs no I/O.

    Raises:
        AlreadySo, WishRefused: as `ask`.
    """
    metadata, spec = stream["metadata"], stream["spec"]
    key, suspended = f"{metadata['namespace']}/{metadata['name']}", bool(spec.get("suspend"))
    if metadata.get("deletionTimestamp"):
        raise WishRefused(f"{key} is being deleted; nothing was changed.")
    match wish:
        case Wish.SUSPEND if suspended:
            raise AlreadySo(f"{key} is suspended already (it is {phase_of(stream)}); nothing was changed.")
        case Wish.RESUME if not suspended:
            raise AlreadySo(f"{key} is not suspended (it is {phase_of(stream)}); nothing was changed.")
        case Wish.RESTART if suspended:
            raise WishRefused(
                f"{key} is suspended, so that no driver is to run; nothing was changed: resume it instead."
            )
        case Wish.SUSPEND:
            return {"suspend": True}
        case Wish.RESUME:
            return {"suspend": False}
        case Wish.RESTART:
            nonce = int(spec.get("restartNonce") or 0)
            return {"restartNonce": nonce + 1 if nonce < LARGEST else 0}


def outcome(wished: Wished, stream: Stream) -> Outcome | None:
    """Return how a wish has ended, by the status of the stream as it is now; None while it continues. Performs no I/O."""
    status = stream.get("status") or {}
    phase, message = phase_of(stream), str(status.get("message") or "")
    if int(status.get("observedGeneration") or 0) < wished.generation:
        return None
    if status.get("specProblem") and wished.wish is not Wish.SUSPEND:
        return Outcome(False, f"Its spec is invalid, so that no driver is started with it: {status['specProblem']}")
    match phase:
        case Phase.SUSPENDED if wished.wish is Wish.SUSPEND:
            return Outcome(True, message)
        case Phase.HALTED:
            return Outcome(False, message)
        case Phase.RUNNING | Phase.COMPLETED if wished.wish is not Wish.SUSPEND:
            is_new = attempt_of(stream) > wished.attempt or wished.wish is Wish.RESUME
            return Outcome(True, message) if is_new else None
    return None


def attempt_of(stream: Stream) -> int:
    """Return the latest attempt; 0 before the first."""
    return int((stream.get("status") or {}).get("attempt") or 0)


def phase_of(stream: Stream) -> str:
    """Return the phase; Pending where no operator has looked at the stream yet."""
    return str((stream.get("status") or {}).get("phase", Phase.PENDING))


def waiting_words(stream: Stream) -> str:
    """Return in a line where the awaited stream stands."""
    message = str((stream.get("status") or {}).get("message") or "")
    return f"{phase_of(stream)}: {message}" if message else phase_of(stream)
