"""What a stream whose rows go elsewhere says of a ledger in Postgres."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from exactlyonce.connectors.postgres.spec import SECRET_KEYS, LedgerSchema
from exactlyonce.schema.model import Model, SecretRef


class LedgerInPostgres(Model):
    """A ledger in a schema of a Postgres database; streams of any number may share it."""

    fixed_fields: ClassVar[tuple[str, ...]] = ("schema",)

    secret_ref: SecretRef = Field(description=f"The login; the keys read are {', '.join(SECRET_KEYS)}.")
    schema_name: LedgerSchema = Field(
        "exactlyonce", alias="schema", description="The schema in which the ledger keeps its tables."
    )

    @property
    def folder(self) -> None:
        """It is in a database."""
        return None
