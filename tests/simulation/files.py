"""An in-memory `LogStore`, shared by the operator and the model of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from exactlyonce.checkpoint.store import AlreadyExists, Created, CreateOutcome, Entry, FileMissing


class MemoryStore:
    """Files by path; every create is atomic."""

    location = "/checkpoints/orders"

    def __init__(self, step: Callable[[str], None] = lambda label: None) -> None:
        self.files: dict[str, bytes] = {}
        self._step = step

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder."""
        prefix = f"{folder}/" if folder else ""
        names: dict[str, tuple[int, bool]] = {}
        for path, content in self.files.items():
            if path.startswith(prefix):
                name, slash, _ = path[len(prefix) :].partition("/")
                names[name] = (len(content), bool(slash))
        return tuple(Entry(name, *names[name]) for name in sorted(names))

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        try:
            return self.files[path]
        except KeyError:
            raise FileMissing(path) from None

    def commits(self) -> tuple[str, ...]:
        """Return the files of all commit logs."""
        return tuple(path for path in self.files if "/commits/" in path)

    def create(self, path: str, content: bytes) -> CreateOutcome:
        """Create a file unless its name is taken."""
        self._step(f"create {path}")
        if path in self.files:
            return AlreadyExists(self.files[path])
        self.files[path] = content
        return Created()

    def replace(self, path: str, expected: bytes, content: bytes) -> bool:
        """Replace a file that holds what is expected."""
        self._step(f"replace {path}")
        if self.files.get(path) != expected:
            return False
        self.files[path] = content
        return True

    def tree(self, folder: str) -> Mapping[str, int]:
        """Return every file below a folder with its size."""
        prefix = f"{folder}/" if folder else ""
        return {path[len(prefix) :]: len(content) for path, content in self.files.items() if path.startswith(prefix)}

    def entries(self, folder: str, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Entry]:
        """Yield the entries of a folder."""
        yield from self.list(folder)

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield every file below a folder."""
        yield from self.tree(folder).items()

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files."""
        for path in paths:
            self._step(f"remove {path}")
            self.files.pop(path, None)

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove a folder, one file after another, or a file."""
        for name in [name for name in self.files if name == path or name.startswith(f"{path}/")]:
            if is_enough():
                return False
            self.delete([name])
        return True

    def folders_above(self) -> tuple[MemoryStore, ...]:
        """Nothing is above."""
        return ()

    def copy(self, source: str, target: str) -> None:
        """Make `target` a copy of a file."""
        self._step(f"copy {source} to {target}")
        self.files[target] = self.read(source)


def highest_commit(commits: tuple[str, ...], published: int) -> int:
    """Return the highest batch that the commit log of this generation or a later one holds beside its seed; or -1."""
    seeds: dict[str, int] = {}
    found = -1
    for path in commits:
        generation, _, name = path.partition("/commits/")
        if name.isdigit() and int(generation.split("-")[1]) >= published:
            batch, seed = int(name), seeds.get(generation)
            found = found if seed is None else max(found, batch, seed)
            seeds[generation] = batch if seed is None else min(batch, seed)
    return found
