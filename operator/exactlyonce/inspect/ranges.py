"""What a source's entries in the offset log say to a person: a range from one batch's entry to the next. Performs no I/O."""

from __future__ import annotations

from exactlyonce.bounded_json import JsonRefused, parse_json


def file_number_of(entry: str | None) -> int | None:
    """Return the number in a file source's own log that an entry means, or None. Source: FileStreamSourceOffset."""
    found = _json(entry)
    if isinstance(found, dict) and list(found) == ["logOffset"] and isinstance(found["logOffset"], int):
        return found["logOffset"]
    return None


def is_file_source(entries: tuple[str | None, ...]) -> bool:
    """Return whether a source's entries are those of a file source."""
    return any(file_number_of(entry) is not None for entry in entries)


def range_text(start: str | None, end: str | None) -> str:
    """Return a range in words; of a source with partitions, like Kafka, those that move, each with how many records.

    `start` is None where no log tells it.
    """
    if end is None:
        return "no offset"
    if start == end:
        return "nothing new"
    if file_number_of(end) is not None:
        before, last = file_number_of(start), file_number_of(end)
        first = 0 if before is None else before + 1
        return f"entry {last}" if first == last else f"entries {first} to {last}"
    starts, ends = partitions_of(start), partitions_of(end)
    if ends is None:
        return f"{'?' if start is None else start} to {end}"
    moved = [_partition_text(key, None if starts is None else starts.get(key), until) for key, until in ends.items()]
    return ", ".join(text for text in moved if text)


def partitions_of(entry: str | None) -> dict[str, int] | None:
    """Return the offsets of an entry like Kafka's, by `topic/partition`; None for an entry of another kind."""
    found = _by_topic(entry)
    if found is None:
        return None
    return {f"{topic}/{key}": at for topic, of in sorted(found.items()) for key, at in sorted(of.items())}


def offsets_of(entry: str | None) -> dict[tuple[str, int], int] | None:
    """Return the offsets of an entry like Kafka's, by topic and number, in this order; None for an entry of another kind."""
    found = _by_topic(entry)
    if found is None or not all(key.isascii() and key.isdigit() for of in found.values() for key in of):
        return None
    return {
        (topic, number): at
        for topic, of in sorted(found.items())
        for number, at in sorted((int(key), at) for key, at in of.items())
    }


def _by_topic(entry: str | None) -> dict[str, dict[str, int]] | None:
    found = _json(entry)
    if not isinstance(found, dict) or not found:
        return None
    if not all(isinstance(of, dict) and all(isinstance(at, int) for at in of.values()) for of in found.values()):
        return None
    return found


def _partition_text(key: str, start: int | None, end: int) -> str:
    if start is None:
        return f"{key} ?..{end}"
    return "" if start == end else f"{key} {start}..{end} ({end - start})"


def _json(entry: str | None) -> object:
    if entry is None:
        return None
    try:
        found: object = parse_json(entry)
    except JsonRefused:
        return None
    return found
