"""What a dry run of a StreamReplay is told of its ranges by their source. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exactlyonce.control.deadline import Deadline
from exactlyonce.errors import OriginMissing
from exactlyonce.launch.replay_source import facts_of
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import finding_of
from exactlyonce.reconcile.replay_choice import NOT_LOOKED_AT, Shown
from exactlyonce.source.connector import SourceCheck


def found_in(source: SourceCheck, asked: Sequence[RecordedFailure], deadline: Deadline) -> Iterator[Shown]:
    """Yield what a source says of ranges, each in a partition of its own; of a missing origin alone, where one is missing.

    Then each is a question of its own, and those that come after the deadline were not looked at.

    Raises:
        SourceUnreachable, SourceRefused: by situation.
    """
    if deadline.is_over:
        yield from (Shown(it, None, NOT_LOOKED_AT) for it in asked)
        return
    try:
        facts = facts_of(source, [it.row for it in asked])
    except OriginMissing as problem:
        if len(asked) == 1:
            yield Shown(asked[0], None, str(problem))
        else:
            for it in asked:
                yield from found_in(source, [it], deadline)
        return
    for it in asked:
        yield Shown(it, finding_of(it.row, facts))
