"""Where a new stream continues behind the rows of one whose ledger is lost.

A row says which user record it is, and not how many the record has: so Kinesis is asked for that record. A shard of which a
child has rows was read to its end, since children are read after that (ADR 29).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.following import position_behind
from exactlyonce.connectors.kinesis.given_positions import given, not_given, some
from exactlyonce.connectors.kinesis.leases import StartsBehind
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.positions import SHARD_END, UserRecord, to_text
from exactlyonce.connectors.kinesis.shards import Shard, ancestors_of, require_whole_map
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import StartInvalid
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import GoesOn

_SECONDS = 240.0


def start_behind(client: KinesisClient, spec: KinesisSource, last: Mapping[Partition, int]) -> GoesOn:
    """Return the start behind the last row of each shard that has one.

    Raises:
        StartInvalid: if a row is of another stream, or Kinesis does not have its record any more.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    foreign = sorted({key.origin for key in last} - {spec.stream})
    if foreign:
        raise StartInvalid(f"The rows are of {some(foreign)}, and the stream reads {spec.stream}.")
    shards = client.shards(spec.named)
    require_whole_map(shards)
    rows = {str(key.key): UserRecord.at(position) for key, position in last.items()}
    done = ancestors_of(shards, rows)
    heads = [shard for shard in shards if shard.id in rows and shard.id not in done]
    deadline = Deadline.within(client.clock, _SECONDS)
    starts = each(lambda shard: _behind(client, spec, shard, rows[shard.id], deadline), heads)
    positions = dict(zip((shard.id for shard in heads), starts, strict=True))
    without_rows = not_given(shards, positions)
    if not without_rows:
        given(shards, positions, StartInvalid)  # what is printed is what the new stream accepts
    shown = {shard: to_text(position) for shard, position in positions.items()}
    ended = {shard: to_text(SHARD_END) for shard in done & rows.keys()}
    return GoesOn(
        ("stream", "shard", "position"),
        {Partition(spec.stream, shard): text for shard, text in sorted({**shown, **ended}.items())},
        {"from": "Positions", "positions": dict(sorted(shown.items()))},
        tuple(_notes(shards, rows, done | rows.keys(), without_rows)),
    )


def _behind(client: KinesisClient, spec: KinesisSource, shard: Shard, last: UserRecord, deadline: Deadline) -> int:
    def invalid(what: str) -> StartInvalid:
        return StartInvalid(f"The last row of stream {spec.stream} {what}.")

    position = position_behind(client, spec.named, shard, StartsBehind(last), deadline, invalid)
    if position is None:
        raise StartInvalid(
            f"Record {last.sequence_number} of shard {shard.id} of stream {spec.stream}, which the last row of the shard is "
            "from, has passed its retention, or the stream was recreated: nobody can tell whether records behind it are lost. "
            "Start the new stream from TrimHorizon or Timestamp, and compare what it lands with these files by hand."
        )
    return position


def _notes(
    shards: Sequence[Shard], rows: Collection[str], read: Collection[str], without: Sequence[str]
) -> Iterator[str]:
    """Yield what the rows do not tell; `read` are the listed shards that were read to their ends or have rows."""
    if without:
        yield (
            f"No row is of {some(without)}: add each of them with the position at which the stream began in it, such as "
            "TRIM_HORIZON."
        )
    listed = {shard.id for shard in shards}
    followed = {parent for shard in shards if shard.id in read for parent in shard.parents}
    gone = sorted(set(rows) - listed - followed)
    if gone:
        yield (
            f"Kinesis does not list {some(gone)} any more: what they held behind their last rows has expired, and nobody can "
            "tell whether all of it had landed."
        )
