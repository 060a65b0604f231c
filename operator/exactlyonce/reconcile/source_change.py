"""Does the resource read other partitions than the stream has read so far? docs/adr/0010. Performs no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.reconcile.deleted_topics import Forgotten, forgotten
from exactlyonce.reconcile.observation import Observation, Request
from exactlyonce.reconcile.verdicts import Contradiction, ContradictionReason, Evidence, RebuildReason
from exactlyonce.source.port import SourceView


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What the resource reads beside, again and no more; `standing` is where a new generation continues in all that it reads.

    `forgotten` is what is no longer there, which the resource names as before.
    """

    added: Positions
    returned: Positions
    removed: Positions
    forgotten: Forgotten
    standing: Positions
    evidence: tuple[Evidence, ...]
    request: Request

    @property
    def reason(self) -> RebuildReason:
        """Why the checkpoint cannot be continued."""
        return RebuildReason.TOPIC_DELETED if self.forgotten.sentences else RebuildReason.SOURCE_SET_CHANGED

    @property
    def sentences(self) -> str:
        """The change and where the stream continues."""
        gone, named = self.forgotten.sentences, self.named_words
        if not gone:
            return f"{named}; a new generation continues at {self.request.shown(self.standing)}."
        without = (
            "" if self.forgotten.recreated else "without it " if len(self.forgotten.topics) == 1 else "without them "
        )
        told = f"{gone} {named}." if named else gone
        return f"{told} A new generation continues {without}at {self.request.shown(self.standing)}."

    @property
    def named_words(self) -> str:
        """What the resource names otherwise than before, in words; empty where that is nothing."""
        clauses = [
            f"{what} {self.request.shown(positions)}"
            for what, positions in (
                ("it adds", self.added),
                ("it takes back", self.returned),
                ("it leaves out", self.removed),
            )
            if positions
        ]
        return f"The resource reads other partitions than before: {'; '.join(clauses)}" if clauses else ""


def is_assigned_differently(request: Request, ledger: LedgerView) -> bool:
    """Whether the resource names its source otherwise than it did for the latest driver, if there was one."""
    return ledger.query is not None and ledger.query.source != request.source


def added_partitions(request: Request, source: SourceView, ledger: LedgerView) -> frozenset[Partition]:
    """Return the partitions that exist and that only a changed resource made the stream read.

    One that appeared in a topic which is read anyway, or by a pattern that has not changed, is no change: its
    first record is the first that counts.
    """
    if ledger.query is None or not is_assigned_differently(request, ledger):
        return frozenset()
    before, read = ledger.query.source, (*ledger.landed.positions, *ledger.retired.positions)
    known, by_partition = {key.origin for key in read}, before.by_partition or request.source.by_partition
    return frozenset(
        key
        for key in source.selected.difference(read)
        if not before.reads(key) and (by_partition or key.origin not in known)
    )


def returned_positions(seen: Observation, ledger: LedgerView) -> Positions:
    """Return where partitions stand that the stream has read, left out, and is to read again."""
    landed, other = ledger.landed.positions, forgotten(seen, ledger).recreated
    return Positions(
        {
            key: offset
            for key, offset in ledger.retired.positions.items()
            if key in seen.source.selected - landed.keys() and key.origin not in other
        }
    )


def source_change(seen: Observation, ledger: LedgerView) -> SourceChange | None:
    """Return how what the resource reads differs from what the stream has read, or None."""
    landed, request = ledger.landed.positions, seen.request
    gone = forgotten(seen, ledger)
    removed = Positions({key: offset for key, offset in landed.items() if not request.source.reads(key)})
    returned = returned_positions(seen, ledger)
    new = added_partitions(request, seen.source, ledger)
    added = Positions()
    if new:
        assert seen.start is not None, "observe resolves where added partitions begin"
        added = Positions({key: seen.start[key] for key in new})
    if not (added or returned or removed or gone.sentences):
        return None
    kept = {key: offset for key, offset in landed.items() if key not in removed and key not in gone.stood}
    recreated = {key: 0 for key in seen.source.selected if key.origin in gone.recreated}
    standing = Positions({**kept, **returned, **added, **recreated})
    evidence = _evidence(seen, added, returned, removed, gone)
    return SourceChange(added, returned, removed, gone, standing, evidence, request)


def stateful_query_changed(
    seen: Observation, ledger: LedgerView, change: SourceChange | None, *, keeps_state: bool
) -> Contradiction | None:
    """What the state of a query was made of is fixed: neither its source nor its plan may change."""
    if not keeps_state:
        return None
    if change is not None and change.forgotten.sentences:
        return _cannot_forget(change)
    if change is not None:
        return _refused(change.named_words, change.evidence)
    if ledger.mark.query == seen.request.query:
        return None
    words = "The source's format, the transform, the output mode or the state store is not the one that the state was made with"
    data = {"before": ledger.mark.query, "now": seen.request.query}
    what = "format, transform, output mode or state store have changed since the latest driver was started"
    return _refused(words, (Evidence(what, data),))


def _cannot_forget(change: SourceChange) -> Contradiction:
    gone = change.forgotten.topics | change.forgotten.recreated
    return Contradiction(
        ContradictionReason.STATEFUL_QUERY_CHANGED,
        f"{change.forgotten.were_matched(gone)} deleted, and the query keeps state that was made with it. Make a stream with "
        "another streamId, which starts with empty state.",
        change.evidence,
    )


def _refused(words: str, evidence: tuple[Evidence, ...]) -> Contradiction:
    return Contradiction(
        ContradictionReason.STATEFUL_QUERY_CHANGED,
        f"{words}, and the query keeps state that was made without that change. Take the change back; or make a stream with "
        "another streamId, which starts with empty state.",
        evidence,
    )


def _evidence(
    seen: Observation, added: Positions, returned: Positions, removed: Positions, gone: Forgotten
) -> tuple[Evidence, ...]:
    def found(key: Partition, words: str, offset: int) -> Evidence:
        return Evidence(f"{key} {words}", {"topic": key.origin, "partition": key.key, "offset": offset})

    bounds, shown = seen.source.bounds, seen.request.position_text
    deleted = "does not exist any more: any records after that are lost and cannot be counted"
    return (
        *(
            found(key, f"was never read and starts at {shown(at)}, as the start of the source says", at)
            for key, at in added.items()
        ),
        *(found(key, f"was left out and continues at {shown(at)}", at) for key, at in returned.items()),
        *(
            found(
                key,
                f"is not read any more; it has landed up to {shown(at)}"
                + (f" of {shown(bounds[key].latest)}" if key in bounds else f" and {deleted}"),
                at,
            )
            for key, at in removed.items()
        ),
        *(found(key, f"had landed up to {shown(at)} and {deleted}", at) for key, at in gone.stood.items()),
        *(
            found(
                key, f"{offsets.text(shown)} was planned, had not landed and is recorded as lost", offsets.from_offset
            )
            for key, offsets in gone.lost.items()
        ),
    )
