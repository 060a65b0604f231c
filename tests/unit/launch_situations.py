"""Situations in which a pass launches a driver, each as the operator finds it; tests let it die between any two effects."""

from __future__ import annotations

from exactlyonce.api.resource import RESET_OFFSETS
from exactlyonce.api.status import Phase, StreamStatus
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.ledger.rows import DatabaseIdentity, Owner
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.reconcile.asked_reset import AskedReset
from exactlyonce.reconcile.loop import Halted
from tests.unit.passes import KEYS, Machine, ended
from tests.unit.stateful_passes import database_went_back

REFUNDS = Partition("refunds", 0)


def first_start() -> Machine:
    return Machine()


def resume() -> Machine:
    return ended()


def checkpoint_lost() -> Machine:
    machine = ended()
    for path in [path for path in machine.store.files if path != "stream.json"]:
        del machine.store.files[path]
    return machine


def accepted_loss() -> Machine:
    machine = ended()
    machine.topic.starts = {KEYS[0]: 60}
    machine.spec = {"recovery": {"onSourceTruncated": "ResumeFromEarliest"}}
    return machine


def made_again() -> Machine:
    machine = ended()
    machine.owner, machine.owner_is_gone = Owner("cluster-1", "uid-2"), True
    return machine


def status_lost() -> Machine:
    machine = ended()
    machine.statuses.status = StreamStatus()
    return machine


def topic_added() -> Machine:
    machine = ended()
    machine.topic.ends[Partition("refunds", 0)] = 20
    machine.topic.starts[Partition("refunds", 0)] = 5
    machine.reads("orders", "refunds")
    return machine


def topic_left_out() -> Machine:
    machine = topic_added()
    machine.reads("refunds")
    return machine


def topic_deleted() -> Machine:
    """A pattern has matched refunds, too, of which 7 records have landed and 5 more were planned before it was deleted."""
    machine = ended()
    machine.topic.ends[REFUNDS] = 20
    kafka = {"bootstrapServers": "memory", "topicPattern": ".*"}
    machine.spec = {
        "source": {"kafka": kafka, "format": {"schema": "id INT"}},
        "recovery": {"onTopicDeleted": "Forget"},
    }
    machine.keys = (*KEYS, REFUNDS)
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 41, 31, 7)
    folder = f"generation-000002-a{attempt}"
    planned = Positions(dict(zip(machine.keys, (45, 31, 12), strict=True)))
    machine.store.files[f"{folder}/offsets/4"] = files.render_offsets(CODEC.render_entry(planned), 8)
    machine.end(attempt)
    machine.run_pass()
    del machine.topic.ends[REFUNDS]
    machine.effects.clear()
    machine.reports.clear()
    return machine


def topic_recreated() -> Machine:
    machine = topic_deleted()
    machine.topic.ends[REFUNDS] = 3
    machine.topic.replaced["refunds"] = "id-2"
    return machine


def forgotten_topic_recreated() -> Machine:
    machine = topic_deleted()
    attempt = machine.run_until_a_driver_runs()
    machine.end(attempt)
    machine.run_pass()
    machine.topic.ends[REFUNDS] = 3
    machine.topic.replaced["refunds"] = "id-2"
    machine.effects.clear()
    machine.reports.clear()
    return machine


def adopted_copy_of_the_database() -> Machine:
    machine = ended()
    machine.database.identity = DatabaseIdentity("8000000000000000008", 5)
    machine.annotations = {"exactlyonce.dev/adopt": machine.view().stream.token}
    return machine


def adopted_checkpoint() -> Machine:
    machine = ended()
    machine.annotations = {"exactlyonce.dev/adopt": machine.view().stream.token}
    machine.database.tables.rows.clear()
    return machine


def started_over() -> Machine:
    machine = ended()
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token}
    return machine


def started_over_without_a_ledger() -> Machine:
    machine = started_over()
    machine.database.tables.rows.clear()
    return machine


def started_over_in_a_copied_database() -> Machine:
    machine = started_over()
    machine.database.identity = DatabaseIdentity("8000000000000000008", 5)
    return machine


def started_over_after_the_ledger_was_lost() -> Machine:
    machine = ledger_lost()
    assert isinstance(machine.run_pass(), Halted)
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token}
    machine.statuses.status = machine.statuses.status.model_copy(update={"phase": Phase.PENDING})
    machine.effects.clear()
    return machine


def ledger_lost() -> Machine:
    """The database and the checkpoint are both gone; only the status knows that a batch landed."""
    machine = ended()
    machine.database.tables.rows.clear()
    machine.store.files.clear()
    return machine


def positions_reset() -> Machine:
    machine = ended()
    view = machine.view()
    landed = view.stream.landed_batch
    assert landed is not None
    after = Positions(dict(zip(KEYS, (60, 10), strict=True)))
    asked = AskedReset(
        view.stream.life, landed, view.landed.positions, after, True, "jane", machine.now, "a wrong join"
    )
    machine.annotations = {RESET_OFFSETS: asked.to_json()}
    return machine


LAUNCHES = [
    (first_start, (0, 0)),
    (resume, (40, 30)),
    (checkpoint_lost, (40, 30)),
    (accepted_loss, (60, 30)),
    (database_went_back, (40, 30)),
    (made_again, (40, 30)),
    (status_lost, (40, 30)),
    (topic_added, (40, 30, 5)),
    (topic_left_out, (5,)),
    (topic_deleted, (41, 31)),
    (topic_recreated, (41, 31, 0)),
    (forgotten_topic_recreated, (41, 31, 0)),
    (adopted_copy_of_the_database, (40, 30)),
    (adopted_checkpoint, (40, 30)),
    (started_over, (0, 0)),
    (started_over_without_a_ledger, (0, 0)),
    (started_over_in_a_copied_database, (0, 0)),
    (started_over_after_the_ledger_was_lost, (0, 0)),
    (positions_reset, (60, 10)),
]
"""Each with where the stream stands once its driver runs."""
