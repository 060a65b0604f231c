"""The SQL of a file in the place of a stream's own transform."""

from __future__ import annotations

from pathlib import Path

from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.errors import Refused

_MOST_SQL = 100_000


class TransformUnreadable(Refused):
    """The file with the transform cannot be used as a transform."""


def with_transform(stream: Stream, file: Path | None) -> Stream:
    """Return the stream with the SQL of a file for its transform, or as it is without one.

    Raises:
        TransformUnreadable: if the file is not there, or holds no SQL.
    """
    if file is None:
        return stream
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise TransformUnreadable(
            f"The transform {file} cannot be read ({_reason(problem)}); name a file with a SELECT over the view source."
        ) from problem
    if not 0 < len(text.strip()) <= _MOST_SQL:
        raise TransformUnreadable(
            f"The transform {file} is empty or longer than {_MOST_SQL} characters; it takes a SELECT over the view source."
        )
    spec = StreamSpec.model_validate({**stream.spec.differences(), "transform": {"sql": text}})
    return stream.model_copy(update={"spec": spec})


def _reason(problem: OSError | UnicodeDecodeError) -> str:
    return problem.strerror or str(problem) if isinstance(problem, OSError) else "it is not UTF-8"
