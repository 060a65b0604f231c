"""What a stream whose rows go elsewhere says of a ledger in Postgres."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.schema.constraints import matches
from exactlyonce.schema.model import Model, SecretRef

SECRET_KEYS = ("uri", "host", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "ca.crt")
"""The keys read from the secret of a Postgres sink: `uri` alone, or `host`, `dbname`, `user` and `password` with the rest
optional. They are libpq's names, and the ones CloudNativePG writes, beside `ca.crt`: the server's authority as PEM.
`sslrootcert` may be `system`. What else a uri may set is told in `connectors.postgres.parameters`."""

LedgerSchema = Annotated[
    str,
    Field(max_length=63),
    matches("[a-z_][a-z0-9_]*", "write a plain name: lowercase letters, digits and underscores, no digit first"),
]


class LedgerInPostgres(Model):
    """A ledger in a schema of a Postgres database; any number of streams may share it."""

    fixed_fields: ClassVar[tuple[str, ...]] = ("schema",)
    folder_field: ClassVar[str | None] = None

    secret_ref: SecretRef = Field(description=f"The login; the keys read are {', '.join(SECRET_KEYS)}.")
    schema_name: LedgerSchema = Field(
        "exactlyonce", alias="schema", description="The schema in which the ledger keeps its tables."
    )

    @property
    def folder(self) -> None:
        """It is in a database."""
        return None
