"""What a sink of two phases does for a replay: it takes the rows of a chunk as a load with a number. No pyspark here.

docs/adr/0053 and 0058.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from exactlyonce.errors import ExactlyOnceError, Refused, Unreachable
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.target import DeadLetter, PreparedLoad, TwoPhaseTarget


class NumberCommitted(ExactlyOnceError):
    """The sink has committed a load of the number that the next one of a replay was to have, or of a later one."""


class ReplayNotInLedger(Refused):
    """The sink has committed a load of a replay that the ledger does not know: the ledger went back."""


class NotYet(Unreachable):
    """A replay that has decided is left some time to commit; whoever finds its decision asks again later."""


@runtime_checkable
class DecidesLoads(Protocol):
    """A `ReplayTarget` whose rows are prepared as a load of the chunk, which the ledger decides and the sink then commits."""

    @property
    def loads(self) -> TwoPhaseTarget:
        """What commits loads; its own labels are those of the replay."""
        ...

    def prepare_load(self, number: int, batch: BatchNumber, rows: object) -> PreparedLoad | None:
        """Have the sink take the rows of a chunk under the label of this number; None where there is no row.

        What another replay has prepared under it, and nobody has decided, is aborted.

        Raises:
            NumberCommitted: if the sink has committed a load of this number, or of a later one.
        """
        ...

    def abort_load(self, load: PreparedLoad) -> None:
        """Abort a load that nobody has decided; what cannot be aborted now is left to the sink."""
        ...


@dataclass(frozen=True)
class LoadsOfChunks:
    """What every `DecidesLoads` of a sink has in common; the sink adds how it aborts a load."""

    loads: TwoPhaseTarget

    def prepare_load(self, number: int, batch: BatchNumber, rows: Any) -> PreparedLoad | None:
        """Have the sink take the rows of a chunk."""
        return self.loads.prepare(batch, f"{number}", rows)

    def write(self, transaction: Any, rows: None) -> int:
        """Land a chunk of which no row was made: there is nothing to load."""
        return 0

    def write_dead_letters(
        self, transaction: Any, batch: BatchNumber, letters: Sequence[DeadLetter], origin_ids: Mapping[str, str]
    ) -> int:
        """There are none: a rule of the resource refuses them with such a sink."""
        raise AssertionError("a sink of two phases keeps no dead letters")
