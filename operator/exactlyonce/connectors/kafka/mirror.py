"""A consumer group shows where a stream has landed, for the tools that watch groups. It is written and never believed.

Whatever goes wrong here is told and tried again later. Nothing of it stops or delays what lands.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exactlyonce.connectors.kafka.admin import KafkaAdmin, NoGroup
from exactlyonce.connectors.kafka.groups import Committed, ConsumerGroup
from exactlyonce.connectors.kafka.start import members_words
from exactlyonce.errors import ExactlyOnceError, GroupUnfit
from exactlyonce.positions.ranges import Partition, Positions

MARK = "exactlyonce "
"""What the text of an offset that a stream has committed begins with; the id of the stream follows."""

_SHOW_SECONDS = 10.0
_TOLD_AGAIN_SECONDS = 600.0
_MOST_KEPT = 10_000


def to_commit(
    stream_id: str, landed: Positions, committed: Mapping[Partition, Committed], *, takes_over: bool
) -> dict[Partition, int]:
    """Return the offsets to commit so that the group shows what has landed. Performs no I/O.

    `takes_over`: the stream began where this group stood, so the offsets of the consumer before it are its own.

    Raises:
        GroupUnfit: if another stream has committed one of them, or a consumer has.
    """
    own = MARK + stream_id
    for key in landed:
        found = committed.get(key)
        if found is None or found.metadata == own:
            continue
        if found.metadata.startswith(MARK):
            raise GroupUnfit(f"it shows where another stream has landed in {key}: name a group of this stream alone")
        if not takes_over:
            raise GroupUnfit(
                f"a consumer has committed {found.offset} for {key}: name a group that nothing else uses, or delete this one "
                "with kafka-consumer-groups --delete"
            )
    return {key: at for key, at in landed.items() if committed.get(key) != Committed(at, own)}


@dataclass
class ToldBefore:
    """What was told of each group, so that the same sentence comes at most every ten minutes from one process."""

    clock: Callable[[], float] = time.monotonic
    _told: OrderedDict[tuple[str, str, str], tuple[str | None, float]] = field(default_factory=OrderedDict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def news(self, group: tuple[str, str, str], told: str | None) -> str | None:
        """Return the sentence if it has to be told now; `group` is the brokers, the group and the stream."""
        now = self.clock()
        with self._guard:
            before, at = self._told.get(group, (None, 0.0))
            if told == before and now < at + _TOLD_AGAIN_SECONDS:
                return None
            self._told[group] = told, now
            self._told.move_to_end(group)
            while len(self._told) > _MOST_KEPT:
                self._told.popitem(last=False)
        return told


_TOLD = ToldBefore()


@dataclass(frozen=True)
class OffsetMirror:
    """Shows the landed positions of streams in the group `name`."""

    admin: KafkaAdmin
    name: str
    takes_over: bool
    told: ToldBefore = field(default_factory=lambda: _TOLD)

    def show(self, stream_id: str, landed: Positions) -> str | None:
        """Commit what has landed, as far as the group does not show it yet; return what somebody should be told."""
        told = None
        try:
            self._show(stream_id, landed)
        except ExactlyOnceError as problem:
            told = f"Consumer group {self.name} does not show what has landed: {str(problem).rstrip('.')}."
        return self.told.news((self.admin.brokers, self.name, stream_id), told)

    def _show(self, stream_id: str, landed: Positions) -> None:
        group = ConsumerGroup(self.admin, self.name, _SHOW_SECONDS)
        try:
            members = group.members()
        except NoGroup:
            members = ()
        if members:
            raise GroupUnfit(
                f"it has {members_words(members)}, whose own offsets stand there. Stop them, or name another group"
            )
        offsets = to_commit(stream_id, landed, group.committed(frozenset(landed)), takes_over=self.takes_over)
        if offsets:
            group.commit(offsets, MARK + stream_id)
