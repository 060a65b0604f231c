"""An immutable map in the order of its keys: what positions and ranges are. Performs no I/O."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from operator import itemgetter
from typing import Any, Generic, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Default = TypeVar("Default")


class SortedMap(Mapping[Key, Value], Generic[Key, Value]):
    """A map that keeps its own copy of what it is made of.

    What `Mapping` would derive from single look-ups is answered by the dict: every decision compares such maps many times.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[Key, Value] | Iterable[tuple[Key, Value]] = ()) -> None:
        given: dict[Key, Value] = dict(values)
        self._values = dict(sorted(given.items(), key=itemgetter(0))) if len(given) > 1 else given

    def __getitem__(self, key: Key) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, SortedMap) else super().__eq__(other)

    @overload
    def get(self, key: Key, /) -> Value | None: ...

    @overload
    def get(self, key: Key, /, default: Value | Default) -> Value | Default: ...

    def get(self, key: Key, /, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self._values.get(key, default)

    def keys(self) -> KeysView[Key]:
        """Return the keys, in order."""
        return self._values.keys()

    def values(self) -> ValuesView[Value]:
        """Return the values, in the order of their keys."""
        return self._values.values()

    def items(self) -> ItemsView[Key, Value]:
        """Return each key with its value, in order."""
        return self._values.items()
