"""Which streams take a replay, by their resource alone. Performs no I/O."""

from __future__ import annotations

from enum import Enum

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.spec import StreamSpec
from exactlyonce.connectors.specs import BackfilledByTime, TakesReplays
from exactlyonce.errors import Refused
from exactlyonce.schema.model import field_name

_NO_REPLAY = (
    "its rows are neither written in a transaction of the ledger, nor in files that the ledger lists, nor in loads that it "
    "decides"
)


class Replayed(Enum):
    """What a replay lands: ranges in quarantine, dead letters, or ranges that are given by hand.

    The values are those of `exactlyonce replay --from`, and two for backfills whose ranges their own process looks up.
    """

    FAILURES = "failures"
    DEAD_LETTERS = "dead-letters"
    RANGES = "ranges"
    BETWEEN_INTO_OTHER = "what lies between two moments, into another table"
    NAMED_INTO_OTHER = "ranges whose positions are texts, into another table"

    @classmethod
    def of_ranges(cls, *, between: bool, into_other: bool, named: bool = False) -> Replayed:
        """Return what is asked for with ranges: between two moments or by their positions, into another table or not."""
        if not into_other:
            return cls.RANGES
        return cls.NAMED_INTO_OTHER if named else cls.BETWEEN_INTO_OTHER if between else cls.RANGES


class ReplayRefused(Refused):
    """The stream takes no replay as its resource stands."""


def require_replayable(spec: StreamSpec, stream_id: str, asked: Replayed = Replayed.FAILURES) -> None:
    """Require that rows of an earlier batch may be landed in the stream's sink after those of later ones.

    Raises:
        ReplayRefused: with the reason, and what to do.
    """
    reason = why_not_replayable(spec, asked)
    if reason is not None:
        raise ReplayRefused(f"Nothing of {stream_id} can be replayed: {reason}.")


def why_not_replayable(spec: StreamSpec, asked: Replayed = Replayed.FAILURES) -> str | None:
    """Return why a stream takes no replay, as a clause; None where it takes one."""
    sink, source = spec.sink.spec, spec.source.spec
    if not isinstance(sink, TakesReplays):
        name = field_name(spec.sink.connector)
        return f"this release cannot replay into sink.{name}: {_NO_REPLAY}"
    if not source.positions_count_records and asked not in _taken_by(source):
        return _why_only_failures(source, f"source.{field_name(spec.source.connector)}", asked)
    if source.positions_count_records and asked is Replayed.NAMED_INTO_OTHER:
        return (
            f"positions of source.{field_name(spec.source.connector)} are numbers; write them as such (positions instead of "
            "named)"
        )
    if spec.output_mode is not OutputMode.APPEND:
        return f"with outputMode: {spec.output_mode} a row is the result of many records, so that some of them make no rows"
    if spec.source.format.on_tombstone is OnTombstone.DELETE:
        return "with onTombstone: Delete an older record could delete what a later one has written"
    return sink.replay_refusal


def _taken_by(source: object) -> tuple[Replayed, ...]:
    """What is replayed of a source whose positions count no records."""
    if not isinstance(source, BackfilledByTime):
        return (Replayed.FAILURES,)
    return (Replayed.FAILURES, Replayed.BETWEEN_INTO_OTHER, Replayed.NAMED_INTO_OTHER)


def _why_only_failures(source: object, name: str, asked: Replayed) -> str:
    if asked is Replayed.DEAD_LETTERS:
        return (
            f"this release replays no dead letters of {name}: what a record has beside key and value is not kept; export "
            "them, and write them to the table by hand"
        )
    instead = ""
    if isinstance(source, BackfilledByTime):
        instead = (
            f", or fill another table by {source.backfilled_by}: --by-timestamp with --into (byTimestamp and into), or by "
            f"{source.ranges_named_by}: --ranges with --into (named and into)"
        )
    return (
        f"of {name}, whose positions count no records, this release replays what is in quarantine into the stream's own sink, "
        f"and no such ranges; leave --from ranges (spec.from.ranges of a StreamReplay) out{instead}"
    )
