"""What is recorded of a load that the sink has committed and the ledger does not know, before a driver starts."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.ledger.fence import lock_unclaimed
from exactlyonce.ledger.known_loads import FoundLoad
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import settled_loads
from exactlyonce.ledger.races import rerun_after_lost_race
from exactlyonce.ledger.settlement import Settlement
from exactlyonce.positions.ranges import Epoch


@rerun_after_lost_race
def record_loads(ledger: Ledger, stream_id: str, epoch: Epoch, found: Settlement | FoundLoad) -> None:
    """Record what a person says of a load of which no position follows, or that the sink is to be asked; safe to repeat.

    What a driver has found says more than that the sink is to be asked, and stays.

    Raises:
        EpochOvertaken: if the epoch has been raised or claimed since.
        PositionsMoved: if the ledger has another load to settle.
    """
    with ledger.transaction(evicting=True) as transaction:
        row = lock_unclaimed(transaction, stream_id, epoch)
        if isinstance(found, FoundLoad):
            loads = row.loads if row.loads.found is not None else replace(row.loads, found=found)
        else:
            is_settled = row.loads.found is None and row.loads.names(found.found, found.found.place)
            loads = row.loads if is_settled else settled_loads(row, found)
        if loads != row.loads:
            transaction.update_stream(replace(row, loads=loads))
