"""Where a new stream starts in each shard. Each shard that is to be read is named, except those that follow on one that is.

A child is read once its parents are read to their ends. So it is named at the start only if all of its parents are named at
their ends, or are not listed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.given_positions import given, one_less
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable
from exactlyonce.connectors.kinesis.lease_start import taken_over
from exactlyonce.connectors.kinesis.look_back import at_moment, tip_of
from exactlyonce.connectors.kinesis.patience import Deadline, each
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    from_text,
    to_text,
)
from exactlyonce.connectors.kinesis.reading import is_whole_behind
from exactlyonce.connectors.kinesis.shards import Shard, children_of, listed_parents, require_whole_map
from exactlyonce.connectors.kinesis.spec import KinesisSource, StartFrom
from exactlyonce.errors import StartInvalid

_START_SECONDS = 240.0
"""How long the starts of all shards may be looked for: a pass of the operator has ten minutes."""

_SHOWN = 5


def starting_positions(
    client: KinesisClient,
    arn_or_name: str,
    spec: KinesisSource,
    shards: Sequence[Shard],
    leases: KnownTable | None = None,
) -> dict[str, int]:
    """Return where each of the listed shards starts; `leases` is the table that the stream names, if it names one.

    Parents that are listed no more, of shards that follow, are at their ends: they were gone before the stream began, so
    nothing of them is owed to it.

    Raises:
        StartInvalid: if positions are given that do not fit the shards.
        OriginMissing, SourceRefused, SourceUnreachable: by situation.
    """
    require_whole_map(shards)
    found = _found(client, arn_or_name, spec, shards, leases)
    ids = {shard.id for shard in shards}
    gone = {parent for shard in shards if shard.id not in found for parent in shard.parents if parent not in ids}
    return {**dict.fromkeys(sorted(gone), SHARD_END), **found}


def _found(
    client: KinesisClient,
    arn_or_name: str,
    spec: KinesisSource,
    shards: Sequence[Shard],
    leases: KnownTable | None,
) -> dict[str, int]:
    deadline = Deadline.within(client.clock, _START_SECONDS)
    match spec.start.from_:
        case StartFrom.TRIM_HORIZON:
            return in_order(shards, lambda shard: TRIM_HORIZON)
        case StartFrom.LATEST:
            tips = each(lambda shard: tip_of(client, arn_or_name, shard, deadline), shards)
            return dict(zip((shard.id for shard in shards), tips, strict=True))
        case StartFrom.TIMESTAMP:
            moment = spec.start.moment
            return in_order(shards, lambda shard: at_moment(client, arn_or_name, shard, moment, deadline), each)
        case StartFrom.POSITIONS:
            texts = {shard: from_text(text) for shard, text in spec.start.positions.items()}
            found = given(shards, texts, _not_these_positions)
            whole = each(
                lambda shard: is_whole_behind(client, arn_or_name, shard, texts[shard], deadline), sorted(texts)
            )
            for shard, is_there in zip(sorted(texts), whole, strict=True):
                if not is_there:
                    raise _not_these_positions(
                        f"has {shard} at {to_text(texts[shard])}, and the shard holds no such record: it has passed the "
                        "stream's retention, or is one of another stream; name a record that the shard still holds"
                    )
            return found
        case StartFrom.LEASE_TABLE:
            assert leases is not None, "a rule of the resource requires it"
            return taken_over(client, arn_or_name, shards, leases, deadline)


def in_order(
    shards: Sequence[Shard],
    start_of: Callable[[Shard], int],
    call: Callable[[Callable[[Shard], int], Sequence[Shard]], Iterable[int]] = map,
) -> dict[str, int]:
    """Return the start of each shard whose listed parents all start at their ends; the others follow. Performs no I/O itself.

    `call` applies `start_of` to shards that do not wait for each other.
    """
    followers, waits = children_of(shards), listed_parents(shards)
    found: dict[str, int] = {}
    ready = [shard for shard in shards if not waits[shard.id]]
    while ready:
        starts = dict(zip((shard.id for shard in ready), call(start_of, ready), strict=True))
        found |= starts
        ready = [
            child
            for parent, position in starts.items()
            if position == SHARD_END
            for child in followers.get(parent, ())
            if not one_less(waits, child.id)
        ]
    return found


def _not_these_positions(what: str) -> StartInvalid:
    return StartInvalid(
        f"source.kinesis.start.positions {what}; give one position for every shard, except descendants."
    )
