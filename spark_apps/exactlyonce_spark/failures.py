"""Name what ended a driver: ours by their kind, Spark's and the sink's by the cause at their bottom. No pyspark here."""

from __future__ import annotations

import re

from exactlyonce.errors import (
    BatchTooLarge,
    ExactlyOnceError,
    OutcomeUnknown,
    Refused,
    RefusedOutside,
    RowsNotTaken,
    TransactionTooLong,
    Unreachable,
)
from exactlyonce.launch.last_message import Ending
from exactlyonce.ledger.fence import Fenced
from exactlyonce_spark.connectors.recognised import failures_of_connectors

_PYTHON_CAUSE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Refused|Unreachable|[A-Z]\w+)): (.+)", re.MULTILINE)
_RAISED = re.compile(r"Malformed record in .+?(?=\.? SQLSTATE: |$)", re.MULTILINE)
_OTHER_STATE = re.compile(
    r"\[(STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|"
    r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE)\]"
)
_TOO_LARGE = re.compile(
    r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|spark\.driver\.maxResultSize|\bMemoryError\b"
    r"|OOMKilled|possible container OOM|exit code (?:52|137)\b|exactlyonce\.errors\.(?:TransactionTooLong|BatchTooLarge)"
)
"""What says that a batch needed more memory or time than there is; 52 is how an executor ends that ran out of memory.

Source: org.apache.spark.util.SparkExitCode, ExecutorExitCodeJVM and KubernetesClusterSchedulerBackend, Spark 4.2.0.
"""
_KEYS_NOT_REMOVED = re.compile(r"(MultiObjectDeleteException: \[S3Error\([^\n]*)(?:\n\w+: [^\n]*)+")
"""What S3A tells of objects that it could not remove: a line for each, `AccessDenied: KEY: Access Denied`, which would be taken
for an error of Python and a failure of the batch. Source: MultiObjectDeleteException.translateException, Hadoop 3.5.
"""
_WORDLESS = "(no cause message)"
"""What Spark says of an EOFException, with which it notices that a process of a source in Python has gone."""
_TOMBSTONE = "(a tombstone)"
_NAMELESS = ("builtins", "py4j", "pyspark")
"""Where errors come from that only carry another one's words."""

_MOST = 1200


def ending_of(problem: BaseException, *, in_batch: bool, asks_again: bool = False) -> tuple[Ending, str]:
    """Return how a driver ended and a message for a person. Performs no I/O.

    `asks_again`: what a server refuses is no reason to halt, since nobody waits for the answer.
    """
    if isinstance(problem, ExactlyOnceError):
        return _kind_of(problem, in_batch, asks_again), str(problem)
    text = _KEYS_NOT_REMOVED.sub(r"\1", str(problem))
    if not type(problem).__module__.startswith(_NAMELESS):
        text = f"{type(problem).__module__}.{type(problem).__name__}: {text}"
    other_state = _OTHER_STATE.search(text)
    if other_state is not None:
        return Ending.REFUSED, (
            f"The transform keeps other state than the checkpoint holds ({other_state[1]}). Take the change back, or "
            "restore the checkpoint's state; or make a stream with another streamId, which starts with empty state. With "
            "continueAfterBatch a stream can keep none."
        )
    cause = _cause(text)
    if cause is not None:
        name, said = cause
        return _named(name, in_batch, asks_again), said
    for connector in failures_of_connectors():
        outage = connector.outage(text)
        if outage is not None:
            return Ending.UNREACHABLE, _shortened(outage)
    if _WORDLESS in text:
        return (Ending.BATCH_FAILED if in_batch else Ending.FAILED), (
            "The query ended with an error that says nothing, as it does where a process of the driver is killed, for example "
            "for lack of memory; `exactlyonce logs` shows where it was."
        )
    before_the_query = text.split("=== Streaming Query ===")[0].strip()
    said = _shortened(before_the_query or type(problem).__name__)
    return (Ending.BATCH_FAILED if in_batch else Ending.FAILED), said


def case_of(problem: BaseException) -> str:
    """Return the name of the error that a driver ended with, such as FilesGone; empty where none is known. Performs no I/O."""
    if isinstance(problem, ExactlyOnceError):
        return type(problem).__name__
    cause = _cause(_KEYS_NOT_REMOVED.sub(r"\1", str(problem)))
    return "" if cause is None else cause[0].rpartition(".")[2]


def is_too_large(problem: BaseException) -> bool:
    """Whether a batch failed because there was not enough memory or time for all of it. Performs no I/O."""
    return (
        isinstance(problem, TransactionTooLong | BatchTooLarge | MemoryError)
        or _TOO_LARGE.search(str(problem)) is not None
    )


def refused_rows_of(message: str) -> int | None:
    """Return how many rows the sink has refused, if the message of an ending tells a number. Performs no I/O."""
    counts = (connector.refused_rows(message) for connector in failures_of_connectors())
    return next((count for count in counts if count is not None), None)


def _kind_of(problem: ExactlyOnceError, in_batch: bool, asks_again: bool) -> Ending:
    match problem:
        case Fenced():
            return Ending.FENCED
        case RefusedOutside() if asks_again:
            return Ending.UNREACHABLE
        case Refused():
            return Ending.REFUSED
        case RowsNotTaken():
            return Ending.BATCH_FAILED if in_batch else Ending.REFUSED
        case TransactionTooLong() if in_batch:
            return Ending.BATCH_FAILED
        case Unreachable() | OutcomeUnknown():
            return Ending.UNREACHABLE
        case _:
            return Ending.BATCH_FAILED if in_batch else Ending.FAILED


def _named(name: str, in_batch: bool, asks_again: bool) -> Ending:
    """Return the ending for an error of ours that was raised in a task and came back as text."""
    for kind in _all_kinds(ExactlyOnceError):
        if name == f"{kind.__module__}.{kind.__qualname__}":
            return _kind_of(kind("from a task"), in_batch, asks_again)
    return Ending.BATCH_FAILED if in_batch else Ending.FAILED


def _all_kinds(root: type[ExactlyOnceError]) -> list[type[ExactlyOnceError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _all_kinds(child))]


def _cause(text: str) -> tuple[str, str] | None:
    """Return name and words of the error at the bottom of what Spark says, where it is recognised."""
    malformed = _RAISED.search(text)
    if malformed is not None:
        advice = "Mend the producer, or set source.format.onMalformed to DeadLetter."
        if _TOMBSTONE in malformed[0]:
            advice = (
                "Set source.format.onTombstone to Skip, or to Delete with write: Upsert; or onMalformed to DeadLetter."
            )
        return "MalformedRecord", f"{malformed[0].rstrip('.')}. {advice}"
    for connector in failures_of_connectors():
        recognised = connector.recognise(text)
        if recognised is not None:
            return recognised.name, _shortened(recognised.message)
    found = _PYTHON_CAUSE.findall(text)
    named = [
        (name, said)
        for name, said in found
        if not name.startswith(("org.apache", "java.", "py4j", "pyspark")) and not name.isupper()
    ]
    return (named[-1][0], _with_details(text, *named[-1])) if named else None


def _with_details(text: str, name: str, said: str) -> str:
    """Return an error's words, as the connector tells them whose client it is of; words in capitals are not errors."""
    for connector in failures_of_connectors():
        told = connector.told(name, said, text)
        if told is not None:
            return _shortened(told)
    return _shortened(said.strip())


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
