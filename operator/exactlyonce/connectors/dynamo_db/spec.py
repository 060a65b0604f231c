"""What a stream says of a ledger in DynamoDB: the table, and the value of its partition key that is the stream's own."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field

from exactlyonce.schema.aws_login import LOGIN_KEYS
from exactlyonce.schema.constraints import matches
from exactlyonce.schema.model import Model, SecretRef
from exactlyonce.schema.places import Endpoint, Region, TableName, TablePlace

PartitionKey = Annotated[
    str,
    Field(min_length=1, max_length=200),
    matches(
        "[A-Za-z0-9][A-Za-z0-9._/-]*",
        "write letters, digits, dots, underscores, slashes and hyphens, a letter or a digit first",
    ),
]


class DynamoDbLedger(Model):
    """A ledger of items in a DynamoDB table; any number of streams may share the table."""

    fixed_fields: ClassVar[tuple[str, ...]] = ("table", "region", "endpoint", "partitionKey")
    folder_field: ClassVar[str | None] = None

    table: TableName = Field(
        description="The table. If it does not exist it is created, billed per request, with the partition key log and the "
        "sort key name, both of them strings."
    )
    region: Region = Field(description="The table's region.")
    partition_key: PartitionKey | None = Field(
        None,
        description="The value of the partition key of this stream's items, which no other stream may use; the default is "
        "the stream's id.",
    )
    endpoint: Endpoint | None = Field(None, description="The address of a service other than Amazon's.")
    secret_ref: SecretRef | None = Field(
        None,
        description=f"The login; the keys read are {', '.join(LOGIN_KEYS)}. Without it, drivers use the login of "
        "their process, such as a web identity. The operator reads the ledger too, so without it an administrator has to allow "
        "the operator to use its own login there.",
    )

    def of_stream(self, stream_id: str) -> Self:
        """Return the ledger with what it takes from the stream where the resource leaves it out."""
        return self if self.partition_key is not None else self.model_copy(update={"partition_key": stream_id})

    @property
    def folder(self) -> TablePlace:
        """The part of the table that the ledger is in."""
        assert self.partition_key is not None, "a stream fills it in"
        return TablePlace(self.region, self.table, self.partition_key, self.endpoint)


LEDGER = DynamoDbLedger
