"""Which streams take a replay, by their resource alone. Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.spec import StreamSpec
from exactlyonce.connectors.specs import TakesNoReplays, TakesReplays
from exactlyonce.errors import Refused
from exactlyonce.schema.model import field_name

_NO_REPLAY = (
    "its rows are neither written in a transaction of the ledger, nor in files that only the ledger lists, nor in loads that "
    "the ledger decides"
)


class ReplayRefused(Refused):
    """The stream takes no replay as its resource stands."""


def require_replayable(spec: StreamSpec, stream_id: str) -> None:
    """Require that rows of an earlier batch may be landed in the stream's sink after those of later ones.

    Raises:
        ReplayRefused: with the reason, and what to do.
    """
    reason = why_not_replayable(spec)
    if reason is not None:
        raise ReplayRefused(f"Nothing of {stream_id} can be replayed: {reason}.")


def why_not_replayable(spec: StreamSpec) -> str | None:
    """Return why a stream takes no replay, as a clause; None where it takes one."""
    sink, source = spec.sink.spec, spec.source.spec
    if not isinstance(sink, TakesReplays):
        name = field_name(spec.sink.connector)
        reason = sink.no_replay if isinstance(sink, TakesNoReplays) else _NO_REPLAY
        return f"this release cannot replay into sink.{name}: {reason}"
    if not source.positions_count_records:
        return f"this release replays ranges whose positions count records, and not those of {spec.source.connector}"
    if spec.output_mode is not OutputMode.APPEND:
        return f"with outputMode: {spec.output_mode} a row is the result of many records, so that some of them make no rows"
    if spec.source.format.on_tombstone is OnTombstone.DELETE:
        return "with onTombstone: Delete an older record could delete what a later one has written"
    return sink.replay_refusal
