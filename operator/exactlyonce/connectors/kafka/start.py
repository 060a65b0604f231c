"""Where a new stream starts that was told offsets, or a consumer group that has committed some. Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exactlyonce.bounded_text import some_of
from exactlyonce.errors import GroupUnfit, StartInvalid
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import Bounds

_SHOWN = 5


@dataclass(frozen=True)
class Group:
    """A consumer group: who is in it, each in words, and the offsets that it has committed."""

    name: str
    members: tuple[str, ...]
    committed: Positions


def given(
    offsets: Positions, held: Collection[Partition], wanted: Mapping[Partition, Bounds], address: str
) -> Positions:
    """Return the offsets that the resource gives for the partitions wanted, of all that the source has.

    Raises:
        StartInvalid: if an offset is missing, unknown or outside of what the source holds.
    """
    absent = [str(partition) for partition in sorted(wanted) if partition not in offsets]
    unknown = [str(partition) for partition in offsets if partition not in held]
    if absent or unknown:
        wrong = f"lacks {', '.join(absent)}" if absent else f"names {', '.join(unknown)}, which the source has not"
        raise StartInvalid(f"source.kafka.start.offsets {wrong}; give one entry for every partition of {address}.")
    for partition, bounds in wanted.items():
        offset = offsets[partition]
        if not bounds.earliest <= offset <= bounds.latest:
            raise StartInvalid(
                f"source.kafka.start.offsets asks for {partition} at {offset}; the source holds "
                f"{bounds.earliest} to {bounds.latest}. Give an offset within."
            )
    return Positions({partition: offsets[partition] for partition in wanted})


def where_group_stands(group: Group, bounds: Mapping[Partition, Bounds], address: str) -> Positions:
    """Return where a stream continues that takes over from a consumer group, in the partitions that it reads.

    A partition of which the group has committed nothing starts at its end if it is empty: no record is left out or processed
    twice then. With records in it, only the consumer's own setting (auto.offset.reset) said where it would have begun.

    Raises:
        GroupUnfit: if the group has members, has committed nothing, or offsets that are not held.
    """
    named = f"Consumer group {group.name} of Kafka at {address}"
    if group.members:
        raise GroupUnfit(
            f"{named} has {members_words(group.members)}: the stream would process the same records as they do. Stop them, and "
            "it starts."
        )
    committed = {key: group.committed[key] for key in bounds if key in group.committed}
    if bounds and not committed:
        raise GroupUnfit(
            f"{named} has committed no offset of {_some({key.origin for key in bounds})}; correct source.kafka.start.group, or "
            "start from Earliest, Latest, Timestamp or Offsets."
        )
    unknown = [key for key, found in bounds.items() if key not in committed and found.earliest < found.latest]
    if unknown:
        raise GroupUnfit(
            f"{named} has committed no offset of {_some(unknown)}, which {'holds' if len(unknown) == 1 else 'hold'} records; "
            "commit one with kafka-consumer-groups --reset-offsets, or start from Offsets."
        )
    for key, offset in sorted(committed.items()):
        if not bounds[key].earliest <= offset <= bounds[key].latest:
            raise GroupUnfit(
                f"{named} stands at {offset} in {key}, and the source holds {bounds[key].earliest} to {bounds[key].latest}; "
                "commit an offset within by kafka-consumer-groups --reset-offsets, or start from Offsets."
            )
    return Positions({key: committed.get(key, found.latest) for key, found in bounds.items()})


def members_words(members: Sequence[str]) -> str:
    """Return how many members a group has, and who they are."""
    return f"{len(members)} member{'s' if len(members) > 1 else ''} ({_some(members)})"


def _some(names: Iterable[object]) -> str:
    return some_of(sorted(str(name) for name in names), _SHOWN)
