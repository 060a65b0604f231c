"""Which shards a batch's end names beside those that it starts with. Performs no I/O; no pyspark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from exactlyonce.connectors.kinesis.positions import SHARD_END
from exactlyonce.connectors.kinesis.shards import Shard, ancestors_of, children_of


@dataclass(frozen=True)
class Lineage:
    """The shards of a stream as they are listed, and where a batch starts in those that are read.

    It is asked ten times a second for as long as an ended shard is listed, so each part of it is computed once.
    """

    listed: Sequence[Shard]
    starts: Mapping[str, int]

    @cached_property
    def waiting_parents(self) -> frozenset[str]:
        """The listed shards that have been read to their end and of which no child has appeared yet.

        One that is listed no more has children that are listed, and appear, or that have expired as well: nothing is to come.
        """
        ended = (shard.id for shard in self.listed if self.starts.get(shard.id) == SHARD_END)
        return frozenset(
            shard for shard in ended if not any(child.id in self.starts for child in self._followers.get(shard, ()))
        )

    @cached_property
    def held_back(self) -> frozenset[str]:
        """The shards that are still to appear and do not, because some of their descendants are not listed."""
        return self._to_come - self._whole

    @cached_property
    def appearing(self) -> tuple[str, ...]:
        """The children that the next batch's end has to name: their parents have all been read to their ends.

        A parent without a position was read before, or lies before the stream's start, unless it is itself still to appear:
        then its children wait for it. A shard none of whose parents is known is no child of what is read, so it is left alone.
        So is, for now, a shard some of whose descendants are not listed: one of those may be what is read, and the shard read
        before it.
        """
        return tuple(
            shard.id
            for shard in self.listed
            if shard.id in self._to_come
            and shard.id in self._whole
            and self._to_come.isdisjoint(shard.parents)
            and all(self.starts.get(parent, SHARD_END) == SHARD_END for parent in shard.parents)
        )

    @cached_property
    def forgotten(self) -> frozenset[str]:
        """The shards that a batch's end may leave out: read to their end, expired, and all their children are named."""
        ids = {shard.id for shard in self.listed}
        return frozenset(
            shard
            for shard, position in self.starts.items()
            if position == SHARD_END
            and shard not in ids
            and _are_all(followers := self._followers.get(shard, []))
            and all(child.id in self.starts for child in followers)
        )

    @cached_property
    def unreachable(self) -> tuple[str, ...]:
        """The shards that follow on one that is neither listed nor read, so that its records would be passed over.

        Each shard of a stream is named at its start or follows on one that is. Open ones that follow on none have lost those
        between; and of one that is to come each parent is listed or named, since all of them were closed in the same moment.
        """
        known = {shard.id for shard in self.listed} | self.starts.keys()
        return tuple(
            shard.id
            for shard in self.listed
            if (shard.is_open and shard.id not in self.starts and shard.id not in self._to_come)
            or (shard.id in self._to_come and shard.id in self._whole and not known.issuperset(shard.parents))
        )

    @cached_property
    def _followers(self) -> Mapping[str, list[Shard]]:
        return children_of(self.listed)

    @cached_property
    def _to_come(self) -> frozenset[str]:
        """The descendants of what is read that are not read yet.

        An ancestor of what is read was read before it: it had expired and been left out, and is not read a second time because
        it is listed again.
        """
        known = ancestors_of(self.listed, self.starts) | self.starts.keys()
        found: set[str] = set()
        waiting = list(self.starts)
        while waiting:
            new = {child.id for child in self._followers.get(waiting.pop(), ())} - known - found
            found |= new
            waiting += new
        return frozenset(found)

    @cached_property
    def _whole(self) -> frozenset[str]:
        """The shards that are listed with everything that was made of them, down to shards that are open."""
        lacking = [
            shard.id for shard in self.listed if not shard.is_open and not _are_all(self._followers.get(shard.id, []))
        ]
        return frozenset(shard.id for shard in self.listed) - frozenset(lacking) - ancestors_of(self.listed, lacking)


def _are_all(children: Sequence[Shard]) -> bool:
    """Whether these are all children of a shard: a merge makes one of two parents, and a split two of one."""
    return len(children) == (1 if any(len(child.parents) > 1 for child in children) else 2)
