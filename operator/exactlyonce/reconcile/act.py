"""Carry out a decision's actions, in order. Each is safe to repeat after a crash."""

from __future__ import annotations

from typing import assert_never

from exactlyonce.checkpoint.generation import create_marker, replace_marker, write_seed
from exactlyonce.checkpoint.retained import copy_retained
from exactlyonce.ledger.fence import EpochOvertaken
from exactlyonce.ledger.publish import Publication, adopt, publish, record_answers, record_lost, record_query
from exactlyonce.ledger.two_phase import record_loads
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.verdicts import (
    Action,
    Launch,
    RecordAnswers,
    RecordIdentity,
    RecordLoads,
    RecordLost,
    RecordQuery,
    SeedAndPublish,
    WriteMarker,
)


def act(stores: Stores, stream_id: str, epoch: Epoch, action: Action) -> None:
    """Carry out one action under an epoch. `Launch` is the launcher's and does nothing here.

    Raises:
        EpochOvertaken: if another pass has gone further meanwhile; start over.
        Unreachable: if a store does not answer; the whole pass may be repeated.
    """
    match action:
        case RecordIdentity(adoption=adoption):
            adopt(stores.ledger, stream_id, epoch, adoption)
        case WriteMarker():
            _write_marker(stores, action)
        case RecordLost(batch=batch):
            record_lost(stores.ledger, stream_id, epoch, batch, stores.source.address)
        case SeedAndPublish():
            if action.state_of is not None:
                copy_retained(
                    stores.checkpoints, stores.source.codec, action.state_of, action.generation, action.seed_batch
                )
            else:
                write_seed(
                    stores.checkpoints,
                    stores.source.codec,
                    action.generation,
                    action.seed_batch,
                    action.after.positions,
                    action.shuffle_partitions,
                    action.watermark_policy,
                )
            publish(stores.ledger, stream_id, _publication(stores, epoch, action))
        case RecordQuery(query=query):
            record_query(stores.ledger, stream_id, epoch, query)
        case RecordAnswers(batch=batch, answers=answers):
            record_answers(stores.ledger, stream_id, epoch, batch, answers)
        case RecordLoads(found=found):
            record_loads(stores.ledger, stream_id, epoch, found)
        case Launch():
            pass
        case _:
            assert_never(action)


def _write_marker(stores: Stores, action: WriteMarker) -> None:
    store, marker, expected = stores.checkpoints, action.marker, action.replaces
    written = create_marker(store, marker) == marker if expected is None else replace_marker(store, expected, marker)
    if not written:
        raise EpochOvertaken(f"{store.location} was taken by another stream at this moment.")


def _publication(stores: Stores, epoch: Epoch, action: SeedAndPublish) -> Publication:
    return Publication(
        epoch=epoch,
        generation=action.generation.number,
        path=action.generation.path(stores.checkpoints.location),
        seed_batch=action.seed_batch,
        before=action.before,
        after=action.after,
        note=action.note,
        given_up=action.given_up,
        query=action.query,
        goes_on=action.state_of is not None,
        resets=action.resets,
        most_quarantined=action.most_quarantined,
        settlement=action.settlement,
    )
