"""Reconciliation in a driver's pod, where the operator does not reach the checkpoint: docs/adr/0011.

The operator raises the epoch and writes a brief; the same observe, decide and act run over the mounted volume, under that
epoch; their word is a termination message, which the operator reads from the pod's record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from exactlyonce.api.resource import API_VERSION, ASKED_OF_A_PASS, KIND, Stream, parse_stream
from exactlyonce.checkpoint.generation import parse_generation
from exactlyonce.errors import OutcomeUnknown, Refused, RefusedOutside, Unreachable
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict
from exactlyonce.ledger.fence import EpochOvertaken, holds_ticket
from exactlyonce.ledger.publish import PositionsMoved
from exactlyonce.ledger.rows import Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile.act import act
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Known, MayLive, NoPredecessor, Observation, Predecessor, ProvenDead
from exactlyonce.reconcile.observe import Stores, observe, request_of
from exactlyonce.reconcile.verdicts import Decision, SeedAndPublish, batch_of, kind_of, reason_of


@dataclass(frozen=True)
class Brief:
    """What the operator gives to a reconciliation that runs in a pod: the stream, and what only the operator knows.

    `gone_owner` is the owner that the ledger had before the raise, where it no longer exists. The stream's annotations
    but those that a decision depends on are left out. `ticket` is what the raise drew, `known` what the status remembers
    of the ledger, `shrunk` how many offsets a batch may have for now, `too_large` the batch because of which, `poison`
    the batch that the driver quarantines, by its failing records alone where it `bisects`.
    `finished_by` is as `Request` has it.
    """

    stream: Stream
    owner: Owner
    gone_owner: Owner | None
    predecessor: Predecessor
    ticket: str
    known: Known | None = None
    shrunk: int | None = None
    too_large: int | None = None
    poison: int | None = None
    bisects: bool = False
    finished_by: int | None = None

    def render(self) -> str:
        """Return the brief as JSON."""
        metadata = self.stream.metadata
        asked = {key: value for key, value in metadata.annotations.items() if key in ASKED_OF_A_PASS}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "annotations": asked},
            "spec": self.stream.spec.differences("driver.podTemplate", "executor.podTemplate"),
        }
        brief = {
            "stream": document,
            "owner": _owner_document(self.owner),
            "goneOwner": None if self.gone_owner is None else _owner_document(self.gone_owner),
            "predecessor": _predecessor_document(self.predecessor),
            "ticket": self.ticket,
            "known": None if self.known is None else _known_document(self.known),
            "shrunk": self.shrunk,
            "tooLarge": self.too_large,
            "poison": self.poison,
            "bisects": self.bisects,
            "finishedBy": self.finished_by,
        }
        return json.dumps({key: value for key, value in brief.items() if value is not None}, indent=2)

    @classmethod
    def parse(cls, text: str) -> Brief:
        """Return what `render` wrote.

        Raises:
            ResourceInvalid: if the stream is not one that this release knows.
            KeyError, TypeError, ValueError: if the text is something else.
        """
        document = json.loads(text)
        gone, known = document.get("goneOwner"), document.get("known")
        return cls(
            parse_stream(document["stream"], "the brief"),
            Owner(**document["owner"]),
            None if gone is None else Owner(**gone),
            _predecessor(document["predecessor"]),
            document["ticket"],
            None if known is None else _known(known),
            document.get("shrunk"),
            document.get("tooLarge"),
            document.get("poison"),
            document["bisects"],
            document.get("finishedBy"),
        )


def reconcile_in_pod(stores: Stores, brief: Brief, epoch: Epoch) -> PodVerdict:
    """Observe, decide and act once, for a driver whose container starts next, and return what came of it.

    Never raises for what the outside world does. Doing it again under the same epoch is harmless.
    """
    try:
        request = request_of(
            brief.stream,
            brief.owner,
            brief.shrunk,
            brief.too_large,
            brief.poison,
            bisects=brief.bisects,
            finished_by=brief.finished_by,
        )
        seen = observe(
            stores,
            request,
            epoch,
            brief.predecessor,
            lambda owner: owner == brief.gone_owner,
            brief.known,
        )
        _require_epoch(seen, epoch, brief.ticket)
        decision = decide(seen)
        for action in () if decision.finishes else decision.actions:
            act(stores, brief.stream.stream_id, epoch, action)
    except (EpochOvertaken, PositionsMoved) as problem:
        return PodVerdict(Outcome.OVERTAKEN, str(problem))
    except (Unreachable, OutcomeUnknown, RefusedOutside) as problem:
        return PodVerdict(Outcome.UNREACHABLE, str(problem))
    except Refused as problem:
        return PodVerdict(Outcome.REFUSED, str(problem))
    return _word(decision, seen, stores.checkpoints.location)


def _require_epoch(seen: Observation, epoch: Epoch, ticket: str) -> None:
    """A pod whose attempt was overtaken says so before it decides; its epoch is checked under the lock in any case.

    One of a former life may have an epoch that the stream has reached again; then its ticket is another one.
    """
    row = None if seen.ledger is None else seen.ledger.stream
    if row is None or row.epoch != epoch or row.claim is not None:
        found = "has no row" if row is None else f"is at epoch {row.epoch}{' and claimed' if row.claim else ''}"
        raise EpochOvertaken(f"The ledger of {seen.request.stream_id} {found}; this pod has epoch {epoch}.")
    if not holds_ticket(row, ticket):
        raise EpochOvertaken(
            f"Another raise made epoch {epoch} of {seen.request.stream_id}: this pod belongs to a former life of the stream."
        )


def _word(decision: Decision, seen: Observation, location: str) -> PodVerdict:
    verdict, row = decision.verdict, None if seen.ledger is None else seen.ledger.stream
    path, landed = (None, None) if row is None else (row.checkpoint_path, row.landed_batch)
    for action in decision.actions:
        if isinstance(action, SeedAndPublish):
            path, landed = action.generation.path(location), action.seed_batch
    generation = None if path is None else parse_generation(path.rsplit("/", 1)[-1])
    outcome = Outcome.FINISHES if decision.finishes else Outcome.LAUNCHES
    return PodVerdict(
        Outcome.HALTS if decision.halts else outcome,
        verdict.message,
        kind_of(verdict),
        batch_of(verdict),
        landed,
        None if generation is None else generation.number,
        path,
        tuple({"words": item.words, **item.data} for item in verdict.evidence),
        reason_of(verdict),
    )


def _owner_document(owner: Owner) -> dict[str, str]:
    return {"cluster": owner.cluster, "uid": owner.uid}


def _known_document(known: Known) -> dict[str, Any]:
    at = None if known.at is None else known.at.isoformat()
    return {"batch": known.batch, "at": at, "checkpointPath": known.checkpoint_path}


def _known(document: Mapping[str, Any]) -> Known:
    at = document["at"]
    moment = None if at is None else datetime.fromisoformat(at)
    return Known(BatchNumber(document["batch"]), moment, document["checkpointPath"])


def _predecessor_document(predecessor: Predecessor) -> dict[str, str]:
    match predecessor:
        case NoPredecessor():
            return {"kind": "None"}
        case ProvenDead(proof=proof):
            return {"kind": "ProvenDead", "words": proof}
        case MayLive(message=why):
            return {"kind": "MayLive", "words": why}
        case _:
            assert_never(predecessor)


def _predecessor(document: Mapping[str, Any]) -> Predecessor:
    match document["kind"]:
        case "None":
            return NoPredecessor()
        case "ProvenDead":
            return ProvenDead(document["words"])
        case "MayLive":
            return MayLive(document["words"])
        case kind:
            raise ValueError(f"{kind} is not a predecessor that this release knows")
