"""`exactlyonce offsets`: where a stream stands, partition by partition."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click
from rich.console import Console
from rich.table import Table

from exactlyonce.checkpoint.generation import parse_generation
from exactlyonce.checkpoint.state import Readable, read_generation
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.source.port import Bounds

_COLUMNS = ("planned", "checkpointed", "landed", "earliest", "latest", "lag")


Rows = dict[Partition, dict[str, int | str | None]]


def show_offsets(rows: Rows, *, as_json: bool) -> None:
    """Print one row per partition."""
    if as_json:
        listed = [{"topic": key.origin, "partition": key.key, **row} for key, row in rows.items()]
        click.echo(json.dumps(listed, indent=2))
        return
    table = Table("topic", "partition", *_COLUMNS, box=None, pad_edge=False)
    for key, row in rows.items():
        table.add_row(key.origin, str(key.key), *("-" if row[name] is None else str(row[name]) for name in _COLUMNS))
    Console().print(table)


def offsets_of(opened: LocalStream) -> Rows:
    """Return planned, checkpointed, landed, earliest, latest and lag of every partition; None where it is not known.

    A partition that has landed and that the source no longer has stays, without bounds.
    """
    view = opened.ledger.view(opened.stream.stream_id)
    landed = Positions() if view is None else view.landed.positions
    planned, checkpointed = _logs(opened, None if view is None else view.stream.checkpoint_path)
    bounds = opened.stores.source.view(frozenset(landed)).bounds
    return rows_of(opened.stream.spec.source.spec, landed, bounds, planned, checkpointed)


def rows_of(
    source: SourceSpec,
    landed: Positions,
    bounds: Mapping[Partition, Bounds],
    planned: Positions = Positions(),  # noqa: B008 - immutable
    checkpointed: Positions = Positions(),  # noqa: B008 - immutable
) -> Rows:
    """Return a row for each partition that has landed or that the source has. Performs no I/O.

    Positions that count no records are shown as the source writes them, without a lag.
    """
    counts = source.positions_count_records

    def shown(position: int | None) -> int | str | None:
        return position if counts or position is None else source.position_text(position)

    rows: Rows = {}
    for key in sorted(bounds.keys() | landed.keys()):
        held = bounds.get(key)
        rows[key] = {
            "planned": shown(planned.get(key)),
            "checkpointed": shown(checkpointed.get(key)),
            "landed": shown(landed.get(key)),
            "earliest": None if held is None else shown(held.earliest),
            "latest": None if held is None or not counts else held.latest,
            "lag": None if held is None or not counts or key not in landed else held.latest - landed[key],
        }
    return rows


def _logs(opened: LocalStream, path: str | None) -> tuple[Positions, Positions]:
    """Return the ends of the latest planned and the latest checkpointed batch of the published generation."""
    generation = None if path is None else parse_generation(path.rsplit("/", 1)[-1])
    if generation is None:
        return Positions(), Positions()
    state = read_generation(opened.stores.checkpoints, opened.stores.source.codec, generation.folder)
    if not isinstance(state, Readable):
        return Positions(), Positions()
    if state.checkpointed == state.planned:
        return state.planned_end, state.planned_end
    return state.planned_end, state.planned_start or Positions()
