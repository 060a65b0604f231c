"""What a stream says of a memory that it reads, and of one that it writes to."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from exactlyonce.connectors.toy.memory import ORIGIN
from pydantic import Field

from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.specs import Commit, Origins
from exactlyonce.positions.ranges import Partition, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.schema.constraints import Rule, matches
from exactlyonce.schema.model import Model, SecretRef, Whole

Server = Annotated[str, Field(max_length=300), matches("[a-z0-9.-]+:[0-9]+", "write host:port")]


class ToySource(Model):
    """Records in the memory of a process."""

    stream_rules: ClassVar[tuple[Rule, ...]] = ()
    own_fields: ClassVar[tuple[str, ...]] = ()
    folder_fields: ClassVar[tuple[str, ...]] = ()
    origin_noun: ClassVar[str] = "memory"
    positions_count_records: ClassVar[bool] = True
    positions_can_be_chosen: ClassVar[bool] = True
    tasks_show_ranges: ClassVar[bool] = False

    server: Server = Field(description="Where the memory is, as host:port.")
    batch_records: Whole = Field(100, ge=1, le=1_000_000, description="The maximum number of records per batch.")

    @property
    def secret_ref(self) -> SecretRef | None:
        """It takes no login."""
        return None

    @property
    def address(self) -> str:
        """The server."""
        return self.server

    @property
    def shown_in(self) -> str | None:
        """Nowhere."""
        return None

    @property
    def takes_over(self) -> str | None:
        """Nothing."""
        return None

    @property
    def committed_only(self) -> bool:
        """It has no transactions."""
        return False

    def selection(self) -> Selection:
        """Return the whole memory."""
        return Selection(frozenset({ORIGIN}))

    def selected(self, origins: Origins) -> tuple[frozenset[Partition], tuple[str, ...]]:
        """Return all of its partitions."""
        return frozenset(Partition(ORIGIN, key) for key in origins.get(ORIGIN, ())), ()

    def batch_limit(self, interval: timedelta | None) -> str:
        """Return the limit of a batch."""
        return f"{self.batch_records} records"

    def most_records(self, ranges: Ranges) -> int:
        """Return how many offsets the ranges span."""
        return ranges.record_count

    @staticmethod
    def position_text(position: int) -> str:
        """Return an offset as it is."""
        return str(position)


class ToySink(Model):
    """Rows in the memory of a process."""

    stream_rules: ClassVar[tuple[Rule, ...]] = manifest_rules("toy")
    fixed_fields: ClassVar[tuple[str, ...]] = ("server",)
    holds_ledger: ClassVar[bool] = False
    two_phases: ClassVar[bool] = False
    tells_latest_load: ClassVar[bool] = False
    folder_field: ClassVar[str | None] = None

    server: Server = Field(description="Where the memory is, as host:port.")

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
        """Rows go to the memory."""
        return

    @property
    def commit(self) -> Commit:
        """A batch lands as a whole."""
        return Commit.BATCH

    @property
    def transaction_timeout(self) -> timedelta:
        """Only a tag is written in the transaction that lands a batch."""
        return timedelta(minutes=1)


SOURCE = ToySource
SINK = ToySink
