"""Which changes of a stream's resource are this operator's own: the watch tells of them too, and they wake nobody.

A pass knows what it has written. A change of another has another version, or makes the pass's next write a conflict, so
nothing is missed by passing over exactly the versions that were written here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from exactlyonce.control.wakeups import Key

_VERSIONS_KEPT = 16


@dataclass
class OwnWrites:
    """The versions that passes have written last. `wrote` may be called from any thread, the rest from the event loop."""

    _written: dict[Key, deque[str]] = field(default_factory=dict)
    _during: dict[Key, set[str]] = field(default_factory=dict)

    def wrote(self, key: Key, version: str) -> None:
        """Note a version that the pass in hand has written."""
        self._written.setdefault(key, deque(maxlen=_VERSIONS_KEPT)).append(version)

    def begins(self, key: Key) -> None:
        """A pass begins: until it ends it is not known whose a change is."""
        self._during[key] = set()

    def wakes(self, key: Key, version: str) -> bool:
        """Whether a change that the watch tells of wakes the stream now."""
        seen = self._during.get(key)
        if seen is None:
            return not self._is_own(key, version)
        seen.add(version)
        return False

    def ends(self, key: Key) -> bool:
        """A pass has ended: whether a change that came meanwhile is another's."""
        return any(not self._is_own(key, version) for version in self._during.pop(key, set()))

    def forget(self, key: Key) -> None:
        """Drop a stream that is gone."""
        self._written.pop(key, None)

    def _is_own(self, key: Key, version: str) -> bool:
        return version in list(self._written.get(key, ()))
