"""What a person should know of a stream that is valid, and may not mean: told by `validate` and as events. Performs no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from exactlyonce.api.resource import Stream
from exactlyonce.connectors.registry import ADVICE


def advice_of(stream: Stream, others: Iterable[Stream] = ()) -> tuple[str, ...]:
    """Return sentences of advice for a stream, beside others that it may meet; none where there is nothing to say."""
    advise = ADVICE.get(stream.spec.sink.connector)
    if advise is None:
        return ()
    return advise(stream.spec, {other.stream_id: other.spec for other in others if other is not stream})
