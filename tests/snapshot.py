"""What a stream has written, everywhere, so that a test can say that nothing was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rig import Rig

LEDGER = "exactlyonce"

# Every pass that may launch raises the epoch before it looks: that one number says nothing of what landed.
_STREAM = "token, owner_uid, system_identifier, database_oid, landed_batch, generation, checkpoint_path, stateful"


def snapshot(rig: Rig, table: str = "orders") -> dict[str, Any]:
    """Return the rows of the table by id, every file at the checkpoint location, and what the ledger holds."""
    ledger = {name: rig.sql(f"select * from {LEDGER}.{name} t order by t::text") for name in ledger_tables(rig)}
    if "streams" in ledger:
        ledger["streams"] = rig.sql(f"select stream_id, {_STREAM} from {LEDGER}.streams order by 1")
    return {"rows": rig.counts(table), "files": tree(rig.location), "ledger": ledger}


def ledger_tables(rig: Rig) -> list[str]:
    """Return the names of the ledger's tables."""
    return [str(name) for (name,) in rig.sql("select tablename from pg_tables where schemaname = %s", LEDGER)]


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
