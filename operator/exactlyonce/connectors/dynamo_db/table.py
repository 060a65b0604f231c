"""The table of a ledger: what it has to be, and that it is made where it is missing."""

from __future__ import annotations

from exactlyonce.connectors.dynamo_db.items import LOG, NAME
from exactlyonce.dynamo_db.client import DynamoDbClient
from exactlyonce.dynamo_db.tables import TableForm, TableUnfit
from exactlyonce.dynamo_db.tables import require_table as require_table_of
from exactlyonce.schema.places import TablePlace

__all__ = ["TableUnfit", "require_table"]

_FORM = TableForm(
    "a ledger",
    ((LOG, "HASH"), (NAME, "RANGE")),
    f"the partition key {LOG} and the sort key {NAME}, both of type S",
    "two operators could each create one entry",
)


def require_table(client: DynamoDbClient, place: TablePlace) -> None:
    """Require that the table is there and holds what is written to it, and make it where it is missing.

    Raises:
        TableUnfit: if its keys are others, its copies in other regions lag behind, or it may not be made.
        StoreForbidden, StoreUnreachable: if it cannot be looked at, or is not ready in time.
    """
    require_table_of(client, place.table, _FORM)
