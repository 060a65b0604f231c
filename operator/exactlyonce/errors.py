"""Errors that a person will read, named by situation.

Three kinds are kept apart because they are answered differently: `Refused` (the request or the setting is wrong; only a
person can mend it), `Unreachable` (a store did not answer; try again, nothing is known) and `OutcomeUnknown` (an act
was sent and its answer was lost; look again before doing anything else).
"""

from __future__ import annotations

from collections.abc import Iterable


class ExactlyOnceError(Exception):
    """Base of all errors of this project; `str()` is one sentence: what, where, what to do."""


class Refused(ExactlyOnceError):
    """What was asked cannot be done as it stands; trying again changes nothing until a person mends it."""


class LandedGone(Refused):
    """What has landed is gone from its sink, or the sink cannot tell; `batches` are those that are known by their numbers.

    Who has the ledger adds the ranges of these batches to the sentence.
    """

    def __init__(self, message: str, batches: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.batches = tuple(batches)


class RefusedOutside(Refused):
    """A server refused: a login, a right, a topic that is not there. It is mended outside of the stream's resource.

    Where nobody waits for the answer at a terminal, it is asked again later: an outage of a login service, or a password that
    changed a moment before its secret, stops no stream for good.
    """


class Unreachable(ExactlyOnceError):
    """A store did not answer in time; nothing is known of its content, which is not the same as empty."""


class StoreBusy(Unreachable):
    """As many passes as may be are at a store, and none has come back: to be tried again when one has."""


class PassTooLong(Unreachable):
    """The stores of one stream have taken as long as one pass may take; the next pass starts over."""


class OutcomeUnknown(ExactlyOnceError):
    """A request was sent and the answer was lost; it may have taken effect."""


class RowsNotTaken(ExactlyOnceError):
    """A sink answered that rows do not fit it, so the batch has failed, and counts as failed.

    A batch that is decided cannot be passed over any more: where its rows are made again, only a person can mend it.
    """


class BatchTooLarge(ExactlyOnceError):
    """A sink gave up rows of a batch in each try, for want of time or memory; none of them counts, and fewer may fit."""


class SourceUnreachable(Unreachable):
    """The source did not answer in time."""


class SourceRefused(RefusedOutside):
    """The source refuses: its login, a right, or a setting of its client."""


class OriginMissing(RefusedOutside):
    """Something that the stream reads, such as a topic, does not exist in the source."""


class StartInvalid(Refused):
    """The start position asked for cannot be resolved against the source as it is."""


class NotBackfilled(Refused):
    """Some of what was written between two moments cannot be backfilled."""


class GroupUnfit(RefusedOutside):
    """A consumer group that the resource names does not serve its purpose as it stands: it has members, or lacks offsets."""


class LedgerUnreachable(Unreachable):
    """The ledger did not answer in time."""


class TransactionTooLong(LedgerUnreachable):
    """A transaction took longer than it may, and was ended; inside of a batch it is the batch that fails."""


class LostRace(LedgerUnreachable):
    """Another transaction was committed first; nothing of this one took effect, and its rules are to be run again."""


class LedgerRefused(RefusedOutside):
    """The ledger's database answered with a refusal: a wrong password, a missing right, a missing database."""


class CommitOutcomeUnknown(OutcomeUnknown):
    """The connection was lost while a COMMIT was under way; settle it under the stream's lock."""


class LockHeldByOther(Unreachable):
    """A row's lock is held by a session this role may not end."""


class StoreUnreachable(Unreachable):
    """The checkpoint's storage did not answer or may not be read or written."""


class StoreForbidden(StoreUnreachable):
    """The storage answered that this login may not do what was asked."""


class SecretMissing(Refused):
    """A secret that the resource names, or one of its keys, is not there."""


class SecretRefused(SecretMissing):
    """A key of a secret has a value that no stream may set: it would redirect, reach beyond the stream, or widen a limit."""
