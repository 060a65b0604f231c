"""Show Spark's readers merged files in the place of those that they were made of: one write of the compaction they begin from.

Spark's log knows no deletion: since Spark 3.0 a line only adds a file. But readers begin from the latest compaction and take in
what follows it. So where that one entry is replaced as a whole, a reader has either what it said before or what it says now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from exactlyonce.checkpoint.store import FolderStore
from exactlyonce.connectors.files.manifest import Manifest
from exactlyonce.connectors.files.shown import latest_shown, read_entry
from exactlyonce.connectors.files.spark_log import (
    FOLDER,
    LogUnfit,
    address_of,
    latest_compaction,
    line_of,
    name_of,
    parse,
    render,
)


def show_merged(store: FolderStore, manifests: Iterable[Manifest], replacing: Callable[[frozenset[str]], None]) -> None:
    """Replace the lines of files that merged ones stand for, in the compaction that readers begin from; done again, it is done.

    `replacing` is told of the merged files right before readers are shown them; it may be told again of the same.

    A driver may write the next compaction meanwhile, from the one before it was changed: then that one is changed as well.

    Raises:
        LogUnfit: if the entry is missing, or shows a part of the files that one stands for.
    """
    known = tuple(manifests)
    while (number := latest_compaction(latest_shown(store))) is not None:
        name = name_of(number)
        content = read_entry(store, store.location, name, "readers cannot be shown merged files")
        after, merged = with_merged(store.location, name, parse(name, content), known)
        if merged:
            replacing(merged)
            if not store.replace(f"{FOLDER}/{name}", content, render(after)):
                continue
        if latest_compaction(latest_shown(store)) == number:
            return


def with_merged(
    location: str, name: str, lines: list[str], manifests: Iterable[Manifest]
) -> tuple[list[str], frozenset[str]]:
    """Return the lines of an entry where each merged file stands at the place of the first one that it was made of.

    Return also the merged files that it did not show.

    Raises:
        LogUnfit: if it shows a part of the files that one stands for, or both.
    """
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(str(json.loads(line)["path"]), []).append(place)
    after: list[str | None] = list(lines)
    new: set[str] = set()
    for manifest in manifests:
        files = {file.path: file for file in manifest.files}
        for replaced in manifest.replaced:
            paths = {address_of(path, location) for path in replaced.paths}
            shown = sorted(place for path in paths for place in places.get(path, ()))
            if not shown:
                continue
            merged = files.get(replaced.by)
            is_whole = all(len(places.get(path, ())) == 1 for path in paths)
            if not is_whole or merged is None or address_of(merged.path, location) in places:
                raise LogUnfit(
                    f"{location}/{FOLDER}/{name} shows {len(shown)} of the {len(paths)} files that {replaced.by} stands for: "
                    "somebody changed it, so readers miss rows or count them twice. Restore it, or use another path."
                )
            new.add(replaced.by)
            for place in shown:
                after[place] = None
            after[shown[0]] = line_of(merged, location)
    return [line for line in after if line is not None], frozenset(new)
