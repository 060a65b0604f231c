"""An in-memory `ObjectStore` that is as bad as a real one may be: lost and late answers, lists that are not of one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exactlyonce.checkpoint.store import AlreadyExists, Created, CreateOutcome, Entry, FileMissing, FileTooLarge
from exactlyonce.errors import StoreUnreachable


@dataclass
class ObjectHooks:
    """How the store meets the scheduler; the defaults let it be used alone, and answer everything at once.

    `create_fate`: `answered`; `lost` before it took effect; `applied`, and only the answer is lost; or `late`, under way
    until somebody settles it. `reads_fail` says whether a read or a list gets no answer. A list is made in `parts`, and
    `shows` says whether it shows what came or went meanwhile.
    """

    step: Callable[[str], None] = lambda label: None
    create_fate: Callable[[], str] = lambda: "answered"
    reads_fail: Callable[[], bool] = lambda: False
    parts: Callable[[], int] = lambda: 2
    shows: Callable[[], bool] = lambda: True
    changed: Callable[[], None] = lambda: None


class MemoryObjects:
    """Objects by path. `under_way` are creates that nobody waits for any more and that may yet arrive."""

    location = "s3a://lake/orders"

    def __init__(self, hooks: ObjectHooks | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.under_way: list[tuple[str, bytes]] = []
        self.hooks = hooks or ObjectHooks()

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Return an object's content."""
        self._request("read", path)
        try:
            content = self.objects[path]
        except KeyError:
            raise FileMissing(path) from None
        if most_bytes is not None and len(content) > most_bytes:
            raise FileTooLarge(path)
        return content

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create an object unless its name is taken."""
        self.hooks.step(f"create {path}")
        fate = self.hooks.create_fate()
        if fate == "late":
            self.under_way.append((path, content))
        outcome = self._put(path, content) if fate in ("answered", "applied") else None
        if fate != "answered" or outcome is None:
            raise StoreUnreachable(f"no answer to the create of {path}")
        self.hooks.step(f"created {path}")
        return outcome

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder."""
        self._request("list", folder)
        below = f"{folder}/" if folder else ""
        paths = [path.removeprefix(below) for path in self.objects if path.startswith(below)]
        folders = {path.partition("/")[0]: "/" in path for path in paths}
        return tuple(Entry(name, 0, is_folder) for name, is_folder in sorted(folders.items()))

    def names_after(self, folder: str, after: str) -> tuple[str, ...]:
        """List a folder; what comes or goes meanwhile may be there or not."""
        self._request("list", folder)
        before = self._names(folder)
        for _ in range(self.hooks.parts() - 1):
            self.hooks.step(f"list more of {folder}")
        now = self._names(folder)
        if before != now:
            now = (before & now) | self._seen(before - now) | self._seen(now - before)
        return tuple(sorted(name for name in now if name > after))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, one after the other."""
        for path in paths:
            self.hooks.step(f"delete {path}")
            if self.objects.pop(path, None) is not None:
                self.hooks.changed()

    def settle(self, request: tuple[str, bytes]) -> None:
        """Let a request arrive whose sender has long given it up."""
        self.under_way.remove(request)
        self._put(*request)

    def _put(self, path: str, content: bytes) -> CreateOutcome:
        if path in self.objects:
            return AlreadyExists(self.objects[path])
        self.objects[path] = content
        self.hooks.changed()
        return Created()

    def _seen(self, names: set[str]) -> set[str]:
        """Which of the files that came, or went, during a list it shows: all, none, or some."""
        if self.hooks.shows():
            return names if self.hooks.shows() else set()
        return {name for name in sorted(names) if self.hooks.shows()}

    def _request(self, what: str, path: str) -> None:
        self.hooks.step(f"{what} {path}")
        if self.hooks.reads_fail():
            raise StoreUnreachable(f"no answer to the {what} of {path}")

    def _names(self, folder: str) -> set[str]:
        prefix = f"{folder}/"
        return {path.removeprefix(prefix) for path in self.objects if path.startswith(prefix)}
