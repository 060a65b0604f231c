"""A checkpoint as reconciliation seeds it: the next batch of a query over shards starts with the oldest record of each."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from exactlyonce.checkpoint import files
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.connectors.kinesis.positions import TRIM_HORIZON
from exactlyonce.positions.ranges import Partition, Positions


def seed(checkpoint: Path, stream: str, shards: Iterable[str]) -> None:
    """Write it."""
    stands = Positions({Partition(stream, shard): TRIM_HORIZON for shard in shards})
    contents = {
        "metadata": files.render_metadata(str(uuid.uuid4())),
        "offsets/0": files.render_offsets(CODEC.render_entry(stands), 2),
        "commits/0": files.render_commit(),
    }
    for name, content in contents.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(content)
