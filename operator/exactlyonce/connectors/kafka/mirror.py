"""A consumer group shows where a stream has landed, for the tools that watch groups. It is written and never believed.

Whatever goes wrong here is told and tried again later. Nothing of it stops or delays what lands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.connectors.kafka.admin import KafkaAdmin, NoGroup
from exactlyonce.connectors.kafka.groups import Committed, ConsumerGroup
from exactlyonce.connectors.kafka.start import members_words
from exactlyonce.errors import ExactlyOnceError, GroupUnfit
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import NotShown, NotShownBecause

MARK = "exactlyonce "
"""What the text of an offset that a stream has committed begins with; the id of the stream follows."""

_SHOW_SECONDS = 10.0


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


@dataclass(frozen=True)
class OffsetMirror:
    """Shows the landed positions of streams in the group `name`."""

    admin: KafkaAdmin
    name: str
    takes_over: bool

    def show(self, stream_id: str, landed: Positions) -> NotShown | None:
        """Commit what has landed, as far as the group does not show it yet; return why the group does not show it then."""
        try:
            return self._show(stream_id, landed)
        except GroupUnfit as problem:
            return self._told(NotShownBecause.OF_ANOTHER, str(problem))
        except ExactlyOnceError as problem:
            return self._told(NotShownBecause.FAILED, str(problem))

    def _told(self, because: NotShownBecause, why: str) -> NotShown:
        return NotShown(because, f"Consumer group {self.name} does not show what has landed: {why.rstrip('.')}.")

    def _show(self, stream_id: str, landed: Positions) -> NotShown | None:
        group = ConsumerGroup(self.admin, self.name, _SHOW_SECONDS)
        try:
            members = group.members()
        except NoGroup:
            members = ()
        if members:
            told = f"it has {members_words(members)}, whose own offsets stand there. Stop them, or name another group"
            return self._told(NotShownBecause.TWO_CONSUMERS, told)
        offsets = to_commit(stream_id, landed, group.committed(frozenset(landed)), takes_over=self.takes_over)
        if offsets:
            group.commit(offsets, MARK + stream_id)
        return None
