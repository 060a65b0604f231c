"""Another process that writes into the checkpoint: a careless copy of the stream, with its own idea of what was planned."""

from __future__ import annotations

from exactlyonce.positions.ranges import Partition, Positions
from tests.simulation.world import SimulatedWorld


def overwrite(world: SimulatedWorld) -> None:
    """Write over plans of Spark: one that reads less far, or the latest two as a query has them that reads a partition less."""
    plans = [path for path in world.store.files if "/offsets/" in path]
    if not plans:
        return
    if world.random.random() < 0.5:
        path = world.random.choice([*plans, *plans[-2:], *plans[-2:]])
        _write(world, path, {key: max(0, end - 1) for key, end in _ends(world, path).items()})
        return
    latest = plans[-1].rsplit("/", 1)[0]
    of_it = sorted(
        (path for path in plans if path.rsplit("/", 1)[0] == latest), key=lambda path: int(path.rsplit("/", 1)[1])
    )
    keys = list(_ends(world, of_it[-1]))
    left_out = world.random.choice(keys) if keys else None
    for path in of_it[-2:]:
        _write(world, path, {key: end for key, end in _ends(world, path).items() if key != left_out})


def _ends(world: SimulatedWorld, path: str) -> dict[Partition, int]:
    """What a plan says; nothing where it is torn or says nothing."""
    lines = world.store.files[path].decode().split("\n")
    return {} if len(lines) < 3 or lines[2] == "-" else dict(Positions.from_json(lines[2]))


def _write(world: SimulatedWorld, path: str, ends: dict[Partition, int]) -> None:
    if ends:
        lines = world.store.files[path].decode().split("\n")
        world.simulation.tell(f"{path} is overwritten")
        world.store.files[path] = "\n".join([*lines[:2], Positions(ends).to_json()]).encode()
