"""What a stream says of a server that takes loads."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.specs import Commit
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Model, SecretRef

Server = Annotated[str, Field(max_length=300), matches("[a-z0-9.-]+:[0-9]+", "write host:port")]


class LoadsSink(Model):
    """Loads in the memory of a process."""

    stream_rules: ClassVar[tuple[Rule, ...]] = manifest_rules("loads")
    fixed_fields: ClassVar[tuple[str, ...]] = ("server",)
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = True
    tells_latest_load: ClassVar[bool] = False
    folder_field: ClassVar[str | None] = None

    server: Server = Field(description="Where the server is, as host:port.")

    @property
    def secret_ref(self) -> SecretRef | None:
        """It takes no login."""
        return None

    @property
    def further_secrets(self) -> tuple[SecretRef, ...]:
        """There are none."""
        return ()

    @property
    def place_on_s3(self) -> None:
        """Rows go to the server."""
        return

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def transaction_timeout(self) -> timedelta:
        """Only labels are written in the transaction that decides a batch."""
        return timedelta(minutes=1)


SINK = LoadsSink
