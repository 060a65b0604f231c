"""What a planner requires of the list of shards before it continues. No pyspark here."""

from __future__ import annotations

from exactlyonce.connectors.kinesis.reading import PositionExpired
from exactlyonce.errors import SourceUnreachable
from exactlyonce_spark.connectors.kinesis.lineage import Lineage


def require_reachable(lineage: Lineage) -> None:
    """Require that whatever lies between what is read and each other shard is listed.

    Raises:
        PositionExpired: naming shards for which that is not so; reconciliation says which ones expired unread.
    """
    lost = lineage.unreachable
    if lost:
        raise PositionExpired(
            f"{', '.join(lost[:5])} follow on shards that are not listed and that this stream has not read. They have expired, "
            "and how many records they held is not known; or ListShards has left them out for now, and the stream continues "
            "once they are listed."
        )


def require_none_held_back(lineage: Lineage) -> None:
    """Require that a query which reads what there is now leaves no shard out because the list of shards is not whole.

    Raises:
        SourceUnreachable: naming those.
    """
    left = sorted(lineage.held_back)
    if left:
        raise SourceUnreachable(
            f"ListShards does not list all shards that were made of {', '.join(left[:5])}, so whether those were read is not "
            "known; the stream continues once they are listed."
        )
