"""What can bring about what: the hazards of the world that may cause an error, a rebuild or a contradiction."""

from __future__ import annotations

from exactlyonce.connectors.files.source_lines import FileVanished
from exactlyonce.connectors.files.source_lists import ListUnfit
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.spark_log import LogUnfit
from exactlyonce.connectors.files.tenancy import FilesLost
from exactlyonce.connectors.kinesis.answers import NotKinesis, SequenceNumberRefused, ShardMissing
from exactlyonce.connectors.kinesis.pages import RecordsOutOfOrder
from exactlyonce.connectors.kinesis.reading import PositionExpired, RangeIncomplete
from exactlyonce.connectors.kinesis.shards import ShardMapBroken
from exactlyonce.errors import (
    CommitOutcomeUnknown,
    LedgerUnreachable,
    LockHeldByOther,
    OriginMissing,
    SourceRefused,
    SourceUnreachable,
    StoreUnreachable,
)
from exactlyonce.ledger.fence import EpochOvertaken, Fenced
from exactlyonce.ledger.publish import PositionsMoved
from exactlyonce.reconcile.loop import StatusConflict
from exactlyonce.reconcile.verdicts import (
    ContradictionReason,
    RebuildReason,
)
from exactlyonce_spark.batch_settings import LedgerWentBack
from exactlyonce_spark.connectors.files.source_planner import FilesGone, FilesUnknown
from exactlyonce_spark.planned import LandingRefused, OriginReplaced, StagedRowsLost
from exactlyonce_spark.source_check import LeaderChanged, RecordNotShown, RecordsLost, RecordsReplaced
from exactlyonce_spark.tasks import SecondTry
from exactlyonce_spark.witnesses import RowsInDoubt
from tests.simulation.asked_resets import RESET
from tests.simulation.spark_errors import (
    BatchTooLarge,
    LogTaken,
    LogUnreadable,
    OffsetChanged,
    PartitionsDiffer,
    PoisonRecord,
    TaskFailedLate,
    TaskLost,
)
from tests.simulation.state import StateMissing

SUCCESSOR = "a newer attempt"
"""No hazard: that a newer epoch was raised while the driver lived. Attempts are explained for themselves."""

OTHER_OPERATOR = "two operators"

HOUSEKEEPING = "housekeeping"
"""No hazard: that who merges or removes files held or wanted the lock, until somebody who waited ended a session."""

_LEDGER_GONE = ("lose ledger", "drop ledger")
_SESSIONS_END = frozenset(
    {"database crash", "restore", *_LEDGER_GONE, SUCCESSOR, "freeze driver", "cut at commit", OTHER_OPERATOR}
    | {
        "lose driver",
        "start twice",
        HOUSEKEEPING,
    }  # a driver that was given up, or a second one, waits for the lock and ends who holds it
)
_CUT = frozenset({"truncate", "re-create"})
_FILES = frozenset({"lose checkpoint", "lose ledger", "tear checkpoint", "foreign writes"})

ERRORS: dict[type[BaseException], frozenset[str]] = {
    Fenced: frozenset({SUCCESSOR, "start twice", "restore", *_LEDGER_GONE}),
    SourceUnreachable: frozenset({"brokers down", *_CUT}),
    LeaderChanged: frozenset({"leader moves", *_CUT}),
    RecordsReplaced: frozenset({"retention", *_CUT}),  # retention may take the record between two questions
    RecordNotShown: frozenset({"retention", "brokers down", *_CUT}),
    OriginReplaced: frozenset({"re-create"}),
    OffsetChanged: _CUT,
    LedgerUnreachable: _SESSIONS_END,
    LockHeldByOther: _SESSIONS_END,
    CommitOutcomeUnknown: _SESSIONS_END,
    StagedRowsLost: frozenset({"database crash", "restore", *_LEDGER_GONE}),
    RowsInDoubt: frozenset({"database crash", "restore", *_LEDGER_GONE}),
    LedgerWentBack: frozenset({"restore"}),
    LogUnfit: frozenset({"restore"}),
    FilesLost: frozenset({"restore"}),  # what a compaction replaced may be removed when the ledger names it again
    RecordsLost: frozenset({"retention"}),
    LandingRefused: frozenset({"restore", "database crash", "edited by hand", *_FILES}),
    SecondTry: frozenset({"task fails late", "lose task", "poison", "brokers down", "restore", *_SESSIONS_END}),
    TaskFailedLate: frozenset({"task fails late"}),
    PoisonRecord: frozenset({"poison"}),
    BatchTooLarge: frozenset({"too large"}),
    TaskLost: frozenset({"lose task"}),
    LogTaken: frozenset({"lose driver", "lose status"}),
    LogUnreadable: _FILES,
    StateMissing: _FILES,
    PartitionsDiffer: frozenset({"retention", "foreign writes", "new partition"}),
    StoreUnreachable: _FILES | {"cut at commit"},  # the store of an object log gives no answer then
    StatusConflict: frozenset({OTHER_OPERATOR, "lose status", "delivery changed", "started over"}),
    EpochOvertaken: frozenset(
        {OTHER_OPERATOR, "lose status", "restore", *_LEDGER_GONE, "cut at commit", "lose checkpoint"}
    ),  # with a lost checkpoint its token goes, which a new start is about to replace
    PositionsMoved: frozenset({OTHER_OPERATOR, "restore", "edited by hand"}),
}
"""What can end a driver or a pass with an error, if it had effect while that ran. No other error has an excuse."""

ERRORS_OF_KINESIS: dict[type[BaseException], frozenset[str]] = {
    **ERRORS,
    SourceUnreachable: ERRORS[SourceUnreachable]
    | {"throttled", "retention", "unlisted"},  # while hours pass, whoever asks is late
    RangeIncomplete: frozenset({"retention", "re-create"}),
    PositionExpired: frozenset({"retention", "re-create"}),
    ShardMissing: frozenset({"retention", "re-create"}),
    OriginMissing: frozenset({"re-create"}),
    SourceRefused: frozenset({"retention", "re-create"}),  # an idle shard: whether it has lost records cannot be told
    NotKinesis: frozenset(),
    RecordsOutOfOrder: frozenset(),
    ShardMapBroken: frozenset(),
    SequenceNumberRefused: frozenset(),
}
"""The same in a world whose source is a Kinesis stream."""

_LISTS = frozenset({"lose checkpoint", "lose lists", "lose ledger", "tear checkpoint"})
ERRORS_OF_FOLDERS: dict[type[BaseException], frozenset[str]] = {
    **ERRORS,
    StoreUnreachable: ERRORS[StoreUnreachable] | {"brokers down"},  # the source's bucket
    LogUnreadable: _FILES | {SUCCESSOR},  # which removes superseded generations
    FileChanged: frozenset({"file changes"}),
    FileVanished: frozenset({"file vanishes"}),
    FilesGone: frozenset(
        {"file vanishes", "restore", SUCCESSOR, "start twice"}
    ),  # a successor cleans what it has landed
    FilesUnknown: _LISTS,
    ListUnfit: frozenset({"tear checkpoint"}),
}
"""The same in a world whose source is a folder."""

REBUILDS: dict[RebuildReason, frozenset[str]] = {
    RebuildReason.CHECKPOINT_LOST: frozenset({"lose checkpoint"}),
    RebuildReason.CHECKPOINT_DAMAGED: _FILES,
    RebuildReason.CHECKPOINT_OLDER: _FILES,
    RebuildReason.PLANNED_OTHERWISE: frozenset({*_FILES, "restore"}),
    RebuildReason.PARTLY_LANDED: frozenset({"commit changed", "delivery changed", "foreign writes"}),
    RebuildReason.PLANNED_BEYOND_SOURCE: _CUT,
    RebuildReason.SOURCE_SET_CHANGED: frozenset({"topics changed"}),
    RebuildReason.LOCATION_CHANGED: frozenset(),
}
"""What can make a checkpoint unusable; it must have struck since the latest look that continued with it."""

CONTRADICTIONS: dict[ContradictionReason, frozenset[str]] = {
    ContradictionReason.CHECKPOINT_WITHOUT_LEDGER: frozenset(
        {"restore to before the first batch", "lose checkpoint", *_LEDGER_GONE}
    ),
    ContradictionReason.LOCATION_TAKEN: frozenset({"restore to before the first batch", *_LEDGER_GONE}),
    ContradictionReason.LEDGER_LOST: frozenset({"restore to before the first batch", *_LEDGER_GONE}),
    # What is left of a seed whose first files were lost looks as if it had run.
    ContradictionReason.LEDGER_BEHIND_SINK: frozenset({"restore", "lose checkpoint"}),
    ContradictionReason.RESET_REFUSED: frozenset({RESET}),
    ContradictionReason.LEDGER_INCONSISTENT: frozenset({"edited by hand"}),
    ContradictionReason.STATE_WOULD_BE_LOST: frozenset({"lose checkpoint", *_LEDGER_GONE}),
}
"""What a person is called for; it must have struck at any time before."""
