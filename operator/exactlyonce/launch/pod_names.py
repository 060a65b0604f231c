"""Names and labels of what is made for a stream, within the bounds of Kubernetes. Performs no I/O."""

from __future__ import annotations

import hashlib
import re

from exactlyonce.positions.ranges import Epoch

LABEL_MOST = 63  # a label's value, and a DNS label (RFC 1123)
EXECUTOR_PREFIX_MOST = 47  # Spark adds `-exec-` and a number of up to ten digits; a host name has 63

STREAM_LABEL = "exactlyonce.dev/stream"
ATTEMPT_LABEL = "exactlyonce.dev/attempt"
ROLE_LABEL = "exactlyonce.dev/role"
STREAM_ID_ANNOTATION = "exactlyonce.dev/stream-id"
DRIVER, EXECUTOR, RECONCILE = "driver", "executor", "reconcile"
REPLAY_OF_LABEL = "exactlyonce.dev/replay-of"
_REPLAY = ".replay"

ENDING_FINALIZER = "exactlyonce.dev/ending-recorded"
"""Keeps a deleted driver pod's record until its ending is in the stream's status: docs/adr/0007."""

_NO_LABEL_CHARACTER = re.compile(r"[^A-Za-z0-9._-]")
_HASH_LENGTH = 8


def driver_name(stream: str, attempt: Epoch) -> str:
    """The name of an attempt's driver pod and of its ConfigMap; a stream's name is bounded so that it fits a host name.

    Those of replays are never those of streams, whatever the names of both are.
    """
    if stream.endswith(_REPLAY):
        return f"{stream.removesuffix(_REPLAY)}-replay-{attempt}"
    return f"{stream}-driver-{attempt}"


def launched_as(replay: str) -> str:
    """What stands for a StreamReplay where a launcher wants the name of a stream: no stream's name has a dot."""
    return f"{replay}{_REPLAY}"


def network_secret_name(stream: str, attempt: Epoch) -> str:
    """The name of the Secret with which the processes of an attempt know each other."""
    return short_name(stream, f"-network-{attempt}", LABEL_MOST)


def executor_prefix(stream: str, attempt: Epoch) -> str:
    """What the names of an attempt's executor pods start with: a DNS label, which has no dots."""
    return short_name(stream, f"-{attempt}", EXECUTOR_PREFIX_MOST)


def ui_service_name(stream: str) -> str:
    """The name of the Service of Spark's user interface: a DNS label that starts with a letter (RFC 1035)."""
    name = short_name(stream, "-ui", LABEL_MOST - 2)
    return name if name[0].isalpha() else f"s-{name}"


def volume_name(kind: str, name: str) -> str:
    """The name of the volume of something whose own name may be longer, or have dots."""
    return short_name(f"{kind}-{name}", "", LABEL_MOST)


def label_value(text: str) -> str:
    """Return `text` as a label's value; what had to be changed to be one ends in a hash, so that no two become one."""
    allowed = _NO_LABEL_CHARACTER.sub("-", text).strip("._-")
    if allowed == text and len(text) <= LABEL_MOST:
        return text
    return _with_hash(allowed, text, LABEL_MOST)


def labels_of(stream: str, attempt: Epoch, role: str) -> dict[str, str]:
    """The labels of everything that belongs to an attempt."""
    return {
        "app.kubernetes.io/name": "exactlyonce-stream",
        "app.kubernetes.io/instance": label_value(stream),
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "exactlyonce-operator",
        STREAM_LABEL: label_value(stream),
        ATTEMPT_LABEL: str(attempt),
        ROLE_LABEL: role,
    }


def selector_of(stream: str) -> str:
    """The selector of everything that belongs to a stream."""
    return f"{STREAM_LABEL}={label_value(stream)}"


def short_name(text: str, ending: str, most: int) -> str:
    """Return a DNS label of at most `most` characters; what had to be changed to be one has a hash before its ending."""
    without_dots = text.replace(".", "-")
    if without_dots == text and len(text) + len(ending) <= most:
        return text + ending
    return _with_hash(without_dots, text, most - len(ending)) + ending


def _with_hash(shown: str, text: str, most: int) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    kept = shown[: most - _HASH_LENGTH - 1].rstrip("._-")
    return f"{kept}-{digest}" if kept else digest
