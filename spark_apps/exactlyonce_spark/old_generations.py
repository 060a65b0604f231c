"""A driver removes generations that its own has superseded, once a batch has landed in it: docs/adr/0043.

No pyspark here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

from exactlyonce.api.checkpoint_retention import GenerationRetention
from exactlyonce.checkpoint.collecting import collect_generations
from exactlyonce.checkpoint.generation import Generation, parse_generation
from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.ledger.connector import LedgerAddress, Use
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce_spark.housekeeping import OF_CHECKPOINTS, HasEnded, Housekeeping

log = logging.getLogger("exactlyonce.driver")


def of_the_checkpoint(
    address: LedgerAddress, permit: Permit, open_store: Callable[[], ErasableStore], retention: GenerationRetention
) -> Housekeeping:
    """Return the chore that removes superseded generations which are not kept."""

    def remove_once(has_ended: HasEnded) -> bool:
        with closing(address.open(f"exactlyonce {permit.stream_id} housekeeping", Use.HOUSEKEEPING)) as ledger:
            return not remove_superseded(ledger, permit, open_store(), retention, datetime.now(UTC), has_ended)

    return Housekeeping(remove_once, OF_CHECKPOINTS, "the checkpoint's location")


def remove_superseded(
    ledger: Ledger,
    permit: Permit,
    store: ErasableStore,
    retention: GenerationRetention,
    now: datetime,
    has_ended: HasEnded = lambda: False,
) -> bool:
    """Remove generations that are not kept; False, and nothing is removed, until a batch has landed in the current one.

    Until then the earlier ones say which numbers Spark has used: a seed alone is not proof that its number was. Before each
    removal the ledger is asked again whether this driver still is the one that may land.

    Raises:
        LedgerUnreachable, StoreUnreachable: some may be removed; do it again later.
    """
    current = _landed_in(ledger.view(permit.stream_id), permit, store)
    if current is None:
        return False

    def may_remove() -> bool:
        return not has_ended() and _landed_in(ledger.view(permit.stream_id), permit, store) == current

    for generation in collect_generations(store, current, retention, now, may_remove):
        log.info("Removed %s/%s, which newer ones have superseded.", store.location, generation.folder)
    return True


def _landed_in(view: LedgerView | None, permit: Permit, store: ErasableStore) -> Generation | None:
    """Return the published generation if a batch has landed since it was seeded and this driver may land, else None.

    A generation that was made of retained state has no row of its own: the batch before it counts. Its state is a whole copy,
    and the newest superseded generation stays anyway.
    """
    if view is None or (view.stream.epoch, view.stream.claim) != (permit.epoch, permit.claim):
        return None
    path, landed = view.stream.checkpoint_path, view.stream.landed_batch
    row = None if landed is None else view.batch(landed)
    if path is None or row is None or row.status is not BatchStatus.LANDED:
        return None
    generation = parse_generation(path.rsplit("/", 1)[-1])
    return generation if generation is not None and generation.path(store.location) == path else None
