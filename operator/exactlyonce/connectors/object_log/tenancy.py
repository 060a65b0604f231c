"""Whose the place of a log is: one log is one stream's, and begins in an empty folder. Performs no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from exactlyonce.connectors.object_log.state import LedgerState
from exactlyonce.errors import LedgerRefused

_MOST_NAMES = 3


class LocationNotEmpty(LedgerRefused):
    """The place of a log holds files that no log wrote, so no log is begun there."""


class LogOfAnother(LedgerRefused):
    """The log is the ledger of another stream."""


def require_empty(names: Sequence[str], origin: str, location: str) -> None:
    """Require that a folder without a log holds nothing; hidden files do not count.

    Raises:
        LocationNotEmpty: if it does. Where `origin` is among the names, somebody has made the log since it was looked for.
    """
    found = [name for name in names if not name.startswith(".")]
    if found and origin not in found:
        shown = ", ".join(found[:_MOST_NAMES]) + (", …" if len(found) > _MOST_NAMES else "")
        raise LocationNotEmpty(
            f"The ledger's location {location} has no {origin} and is not empty ({shown}); name an empty folder of this stream "
            f"alone, or restore {origin} from a backup if it was removed."
        )


def require_no_other(state: LedgerState, stream_id: str, location: str) -> None:
    """Require that a log holds no other stream.

    Raises:
        LogOfAnother: if it does. Each entry would make the other's landing lose its race, and whoever removes one stream's
            folder would remove both ledgers.
    """
    if any(other != stream_id for other in state.streams()):
        raise LogOfAnother(  # not whose it is: the location is named by a tenant who need not know the other one
            f"The ledger at {location} is that of another stream, so {stream_id} cannot keep its own there; name a folder of "
            "this stream alone."
        )
