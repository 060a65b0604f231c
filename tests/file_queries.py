"""The golden checkpoints and outputs of Spark's own files, put where Spark finds them, and what may become of such folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from scripts.make_golden_file_queries import GOLDEN, NAMED

Damage = Callable[[Path], None]


def remove(*paths: str) -> Damage:
    """Return the damage that takes files away."""

    def damage(state: Path) -> None:
        for path in paths:
            (state / path).unlink()

    return damage


def tear(path: str) -> Damage:
    """Return the damage of a copy that ended half-way."""

    def damage(state: Path) -> None:
        content = (state / path).read_bytes()
        (state / path).write_bytes(content[: len(content) // 2])

    return damage


def empty(path: str) -> Damage:
    """Return the damage of a machine that crashed before the content reached the disk."""

    def damage(state: Path) -> None:
        (state / path).write_bytes(b"")

    return damage


def make_version(path: str, version: int) -> Damage:
    """Return the damage of a newer Spark: the same lines under a later version."""

    def damage(state: Path) -> None:
        (state / path).write_text((state / path).read_text().replace("v1", f"v{version}", 1))

    return damage


def remove_a_part(state: Path) -> None:
    """Remove a part file that the log's compact file names."""
    first = (state / "output/_spark_metadata/9.compact").read_text().split("\n")[1]
    name = first.partition('"path":"')[2].partition('"')[0].rpartition("/")[2]
    (state / "output" / name).unlink()


DAMAGED: dict[str, tuple[str, Damage]] = {
    "source-compact-missing": ("equal", remove("checkpoint/sources/0/9.compact")),
    "older-compact-missing": ("by-three", remove("checkpoint/sources/0/2.compact")),
    "source-gap": ("equal", remove("checkpoint/sources/0/11")),
    "source-torn": ("equal", tear("checkpoint/sources/0/12")),
    "source-empty": ("equal", empty("checkpoint/sources/0/12")),
    "source-last-missing": ("planned", remove("checkpoint/sources/0/12")),
    "source-version-later": ("equal", make_version("checkpoint/sources/0/12", 2)),
    "sink-compact-missing": ("equal", remove("output/_spark_metadata/9.compact")),
    "sink-gap": ("equal", remove("output/_spark_metadata/11")),
    "sink-torn": ("equal", tear("output/_spark_metadata/12")),
    "sink-empty": ("equal", empty("output/_spark_metadata/12")),
    "sink-behind": ("equal", remove("output/_spark_metadata/11", "output/_spark_metadata/12")),
    "part-missing": ("equal", remove_a_part),
}
"""What a disk or a person does to a folder that Spark left: by name, the golden folder and the damage."""


def made(state: str, folder: Path) -> Path:
    """Copy a golden folder, or one with a damage, to `folder`, and name that folder in its logs."""
    golden, damage = DAMAGED.get(state, (state, lambda _: None))
    target = folder / state
    shutil.copytree(GOLDEN / golden, target)
    for file in target.rglob("*"):
        if file.is_file() and {"sources", "_spark_metadata"} & set(file.parts):
            file.write_text(file.read_text().replace(NAMED, f"file://{target}"))
    damage(target)
    return target


def states() -> list[str]:
    """Return the names of all states."""
    return [*sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()), *DAMAGED]
