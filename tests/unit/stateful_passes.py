"""A world whose query keeps state, for tests of passes: every batch leaves its version of the state in the checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.passes import FIRST, STREAM, Machine, started

_OPERATOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "count"},
    "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}],
}


def database_went_back(*, whole: bool = True) -> Machine:
    """Return a world whose database has lost batches 2 and 3, which Spark has committed; `whole`: all state is retained."""
    machine = started()
    with machine.ledger.transaction() as transaction:
        transaction.update_stream(replace(machine.view().stream, stateful=True))
    backup = machine.database.tables.copy()
    machine.land(FIRST, 50, 40)
    machine.land(FIRST, 60, 50)
    folder = f"{_published(machine)}/state/0"
    machine.store.files[f"{folder}/_metadata/metadata"] = b"v1\n" + json.dumps(_OPERATOR).encode()
    for version in range(1 if whole else 3, 5):
        machine.store.files[f"{folder}/0/{version}.snapshot"] = f"the state of version {version}".encode()
    machine.database.restore(backup)
    machine.end(FIRST)
    machine.effects.clear()
    machine.reports.clear()
    return machine


def state_of(machine: Machine) -> dict[str, bytes]:
    """Return the versions of the state in the published generation, by name."""
    folder = f"{_published(machine)}/state/0/0/"
    files = machine.store.files.items()
    return {path.removeprefix(folder): content for path, content in files if path.startswith(folder)}


def _published(machine: Machine) -> str:
    view = machine.ledger.view(STREAM)
    assert view is not None
    assert view.stream.checkpoint_path is not None
    return view.stream.checkpoint_path.rsplit("/", 1)[-1]
