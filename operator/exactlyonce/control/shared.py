"""What the passes over all streams of one operator share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.shared_clients import SharedClients
from exactlyonce.reconcile.progress import RateLimit


@dataclass(frozen=True)
class Shared:
    """What the passes over all streams share: clients, the places at each server, and how often a ledger is looked at."""

    clients: SharedClients = field(default_factory=SharedClients)
    bulkheads: Bulkheads = field(default_factory=lambda: Bulkheads(1))
    rate_limit: RateLimit = field(default_factory=lambda: RateLimit(time.monotonic))
