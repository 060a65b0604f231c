"""Whose is this? The stream, its ledger, its database and its location must agree. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from exactlyonce.api.resource import ADOPT, FRESH
from exactlyonce.checkpoint.generation import MARKER, Marker
from exactlyonce.ledger.life import adopted_token
from exactlyonce.ledger.publish import Adoption
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.reconcile.observation import Observation, Request
from exactlyonce.reconcile.verdicts import (
    Action,
    Contradiction,
    ContradictionReason,
    Evidence,
    RecordIdentity,
    WriteMarker,
)
from exactlyonce.schema.places import S3_PREFIX


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing that does not agree. `token` is what an annotation must hold to settle it; None if none can.

    `advice` says how a person settles it. It names the token only where this stream's own ledger holds it.
    """

    reason: ContradictionReason
    words: str
    token: str | None
    sides: dict[str, str]
    advice: str = ""


_OF_THE_CHECKPOINT = {ContradictionReason.CHECKPOINT_WITHOUT_LEDGER, ContradictionReason.LOCATION_TAKEN}
"""Conflicts about whose the checkpoint is; who adopts another owner's or another database's stream says nothing of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity is settled: what to write, and what a person asked for.

    `fresh`: start over, whatever is there. `adopted`: take over the checkpoint that is there, where no ledger knows it.
    """

    actions: tuple[Action, ...]
    fresh: bool = False
    adopted: bool = False
    settled: tuple[Evidence, ...] = ()


def examine_identity(seen: Observation) -> Identity | Contradiction:
    """Return what the identity asks to be written, or the contradiction that only a person can settle."""
    conflicts = [conflict for check in _CHECKS if (conflict := check(seen)) is not None]
    request, row = seen.request, _row(seen)
    for conflict in conflicts:
        if conflict.token is None or conflict.token not in (request.adopt, request.fresh):
            return _contradiction(conflict)
    tokens = {conflict.token for conflict in conflicts} | ({row.token} if row is not None else set())
    fresh = request.fresh in tokens
    if not conflicts and not fresh:
        return Identity(_routine_actions(seen))
    token = seen.new_token if row is None or fresh else adopted_token(row.token, seen.new_token)
    actions: list[Action] = []
    if row is not None:
        actions.append(RecordIdentity(Adoption(request.owner, seen.database, token, starts_over=fresh)))
    actions.append(WriteMarker(Marker(request.stream_id, token), replaces=seen.location.marker))
    words = "starts over, as the annotation asks" if fresh else "is adopted, as the annotation asks"
    settled = [Evidence(f"{conflict.words}; the stream {words}", conflict.sides) for conflict in conflicts]
    if not conflicts:
        settled = [Evidence(f"the stream {words}", {FRESH: request.fresh})]
    adopted = not fresh and any(conflict.reason in _OF_THE_CHECKPOINT for conflict in conflicts)
    return Identity(tuple(actions), fresh, adopted, tuple(settled))


def location_belongs_to_another(seen: Observation) -> Conflict | None:
    """`stream.json` names another token than the ledger does.

    That token is what the owner of the location knows and nobody else: whoever was told it here could take the location over.
    """
    marker = seen.location.marker
    if marker is None or marker.token == _token(seen):
        return None
    sides = {
        "location": f"{marker.stream_id}, with a token that this ledger does not hold",
        "ledger": seen.request.stream_id,
    }
    advice = _advice_to_read(seen)
    if marker.stream_id == seen.request.stream_id and not _published(seen):
        return Conflict(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            f"{seen.request.location} holds a checkpoint of {marker.stream_id}, and the ledger at {seen.database} knows "
            "nothing of it: the ledger was lost or is another one; restore it, or name the former one again",
            marker.token,
            sides,
            advice,
        )
    words = f"belongs to stream {marker.stream_id}, and {seen.request.stream_id} names it too"
    if marker.stream_id == seen.request.stream_id:
        words = f"belongs to another ledger's {marker.stream_id}, and the one at {seen.database} names it too"
    return Conflict(ContradictionReason.LOCATION_TAKEN, f"{seen.request.location} {words}", marker.token, sides, advice)


def location_holds_something_else(seen: Observation) -> Conflict | None:
    """A stream that has never run here finds files where its checkpoint is to be."""
    if seen.location.marker is not None or _published_here(seen):
        return None
    if seen.location.ran:
        return Conflict(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            f"{seen.request.location} holds generations that ran and no stream.json, and the ledger knows nothing of them",
            None,
            {"location": ", ".join(generation.folder for generation in sorted(seen.location.ran))},
            _advice_to_write(seen),
        )
    if seen.location.foreign and not _published(seen):
        names = ", ".join(seen.location.foreign[:5])
        return Conflict(
            ContradictionReason.LOCATION_NOT_EMPTY,
            f"{seen.request.location} holds {names}, which no stream of this project made; name an empty folder",
            None,
            {"location": names},
        )
    return None


def owner_is_another(seen: Observation) -> Conflict | None:
    """The ledger's row belongs to a resource that is not this one and may still exist."""
    row = _row(seen)
    return None if row is None else _other_owner(seen.request, row, seen.owner_is_gone)


def before_the_raise(request: Request, row: StreamRow, owner_is_gone: bool) -> Contradiction | None:
    """Return the contradiction that the row alone tells: an owner elsewhere keeps its driver, and its epoch."""
    conflict = _other_owner(request, row, owner_is_gone)
    if conflict is None or conflict.token in (request.adopt, request.fresh):
        return None
    return _contradiction(conflict)


def _other_owner(request: Request, row: StreamRow, owner_is_gone: bool) -> Conflict | None:
    if row.owner == request.owner or (row.owner.cluster == request.owner.cluster and owner_is_gone):
        return None  # its own, or that of a resource in whose place this one was made, in this very cluster
    return Conflict(
        ContradictionReason.OTHER_OWNER,
        f"The ledger's {row.stream_id} belongs to the resource {row.owner}, and this is {request.owner}",
        row.token,
        {"ledger": str(row.owner), "resource": str(request.owner)},
        _advice_with(row),
    )


def database_is_another(seen: Observation) -> Conflict | None:
    """The ledger was made in another database: this one is a copy or a restored dump."""
    row = _row(seen)
    if row is None or row.database == seen.database:
        return None
    return Conflict(
        ContradictionReason.OTHER_DATABASE,
        f"The ledger's {row.stream_id} was made in {row.database}, and this is {seen.database}: a copied database",
        row.token,
        {"ledger": str(row.database), "database": str(seen.database)},
        _advice_with(row),
    )


_CHECKS: tuple[Callable[[Observation], Conflict | None], ...] = (
    location_belongs_to_another,
    location_holds_something_else,
    owner_is_another,
    database_is_another,
)


def _routine_actions(seen: Observation) -> tuple[Action, ...]:
    actions: list[Action] = []
    row = _row(seen)
    if row is not None and row.owner != seen.request.owner:
        actions.append(RecordIdentity(Adoption(seen.request.owner, row.database, row.token)))
    if seen.location.marker is None:
        actions.append(WriteMarker(Marker(seen.request.stream_id, _token(seen))))
    return tuple(actions)


def _contradiction(conflict: Conflict) -> Contradiction:
    evidence = (Evidence(conflict.words, conflict.sides),)
    return Contradiction(conflict.reason, f"{conflict.words}{conflict.advice}.", evidence)


def _advice_with(row: StreamRow) -> str:
    """Whoever has the login to this stream's ledger can read the token there, so it may be told."""
    annotated = f"annotate it {ADOPT}={row.token}, or {FRESH}={row.token} to start over"
    return f"; if this resource is to continue as that stream, {annotated}"


def _advice_to_read(seen: Observation) -> str:
    """Whoever owns the location can read its token there."""
    read = f"read the token in {_marker_at(seen)} with access of your own{_on_s3(seen, 'aws s3 cp {} -')}"
    annotated = f"annotate this resource {ADOPT}=<token>, or {FRESH}=<token> to start over"
    yours = "; if that checkpoint is yours and this resource is to continue as that stream"
    return f"{yours}, {read} and {annotated}; otherwise name another location"


def _advice_to_write(seen: Observation) -> str:
    """Whoever owns a location without a token can write one there."""
    marker = json.dumps({"streamId": seen.request.stream_id, "token": "<a long random text>"})
    written = f"write {marker} to {_marker_at(seen)} with access of your own{_on_s3(seen, 'aws s3 cp - {}')}"
    annotated = f"annotate this resource {ADOPT}=<that text>, or {FRESH}=<that text> to start over"
    return f"; if they are yours, {written} and {annotated}; otherwise name another location"


def _marker_at(seen: Observation) -> str:
    return f"{seen.request.location.rstrip('/')}/{MARKER}"


def _on_s3(seen: Observation, command: str) -> str:
    """Return a command for `stream.json` in brackets, where it is on S3."""
    file = _marker_at(seen)
    return f" ({command.format('s3://' + file.removeprefix(S3_PREFIX))})" if file.startswith(S3_PREFIX) else ""


def _row(seen: Observation) -> StreamRow | None:
    return None if seen.ledger is None else seen.ledger.stream


def _published(seen: Observation) -> bool:
    row = _row(seen)
    return row is not None and row.landed_batch is not None


def _published_here(seen: Observation) -> bool:
    """Whether the ledger has published a generation at the location that the resource names now."""
    row = _row(seen)
    path = None if row is None else row.checkpoint_path
    return _published(seen) and path is not None and path.rpartition("/")[0] == seen.request.location.rstrip("/")


def _token(seen: Observation) -> str:
    row = _row(seen)
    return seen.new_token if row is None else row.token
