"""A lease table in memory, with the conditions of a real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from exactlyonce.connectors.kinesis.lease_plan import CreateLease, LeaseWrite
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.leases import Lease


@dataclass
class LeasesInMemory(LeaseTable):
    """What a `LeaseTable` answers. `before_look` and `before_write` stand for what others do meanwhile."""

    held: dict[str, Lease] = field(default_factory=dict)
    before_look: Callable[[], None] = lambda: None
    before_write: Callable[[], None] = lambda: None
    is_there: bool = True
    writes: list[LeaseWrite] = field(default_factory=list)

    @property
    def place(self) -> str:
        """The table in words."""
        return "table app of DynamoDB in eu-west-1"

    def require(self) -> None:
        """Make it."""
        self.is_there = True

    def leases(self) -> dict[str, Lease]:
        """Return a copy."""
        self.before_look()
        return dict(self.held)

    def write(self, write: LeaseWrite) -> bool:
        """Write where the condition holds."""
        self.before_write()
        self.writes.append(write)
        if isinstance(write, CreateLease):
            if write.lease.key in self.held:
                return False
            self.held[write.lease.key] = write.lease
            return True
        lease = self.held.get(write.key)
        if lease is None or lease.counter != write.counter or lease.checkpoint.is_end:
            return False
        self.held[write.key] = replace(
            lease,
            checkpoint=write.checkpoint,
            counter=lease.counter + 1,
            owner=None,
            is_pending=False,
            is_prepared=False,
            children=write.children or lease.children,
            mark=write.mark,
        )
        return True
