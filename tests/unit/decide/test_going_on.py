"""Verdicts that continue with the checkpoint that is there: Resume, ReplayBatch, SkipLanded, FinishBatch."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Partition, Positions
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import NoPredecessor
from exactlyonce.reconcile.verdicts import (
    Decision,
    Evidence,
    FinishBatch,
    Launch,
    RecordLost,
    ReplayBatch,
    Resume,
    SkipLanded,
)
from tests.unit.decide.facts import (
    BATCH_4,
    BEGUN_5,
    MAY_LIVE,
    SINK,
    SINK_AT_50_30,
    TAKEN_4,
    TAKEN_4_EVIDENCE,
    Case,
    asked,
    at,
    batch,
    committed,
    launch,
    ledger,
    location,
    logs,
    planned,
    ranges,
    seen,
    source,
    table,
)

FOUR, FIVE = BatchNumber(4), BatchNumber(5)

RESUMES = "Batch 4 is planned, checkpointed and landed; Spark continues with 5."
RESUME = Resume(FOUR, RESUMES, (planned(4, at(40, 30)), committed(4), SINK))
ROCKSDB = {"spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.RocksDBStateStoreProvider"}


@table(
    Case("planned, checkpointed and landed are the same batch", seen(), launch(RESUME)),
    Case("no driver has written since the generation was published", seen(predecessor=NoPredecessor()), launch(RESUME)),
    Case(
        "the query keeps state and its last driver is proven dead",
        seen(ledger=ledger(stateful=True)),
        launch(RESUME),
    ),
    Case(
        "the last driver may live and state files cannot be spoilt by it",
        seen(replace(logs(conf=ROCKSDB), commit_version=2), ledger=ledger(stateful=True), predecessor=MAY_LIVE),
        launch(
            Resume(
                FOUR,
                RESUMES,
                (
                    *RESUME.evidence,
                    Evidence(
                        "the last driver may still live: its node does not answer",
                        {"predecessor": "its node does not answer"},
                    ),
                    Evidence(
                        "its state files have unique names, so the checkpoint stays in use",
                        {"conf": ROCKSDB},
                    ),
                ),
            )
        ),
    ),
    Case(
        "a batch was taken at most once and its driver never said that it was written",
        seen(ledger=ledger(batches=(TAKEN_4,))),
        Decision(Resume(FOUR, RESUMES, (*RESUME.evidence, TAKEN_4_EVIDENCE)), (RecordLost(TAKEN_4), Launch())),
    ),
    Case(
        "a partition has appeared that no batch has read yet",
        seen(source=source(dict.fromkeys(at(0, 0, 0), (0, 100)))),
        launch(RESUME),
    ),
)
def test_resume_goes_on_with_the_next_batch_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


REPLAYS = "Batch 5 was planned and has not landed; Spark runs it again with the same ranges."


@table(
    Case(
        "batch 5 is in the offset log only",
        seen(logs(5, 4, at(40, 30), at(50, 45))),
        launch(ReplayBatch(FIVE, REPLAYS, (planned(5, at(50, 45)), committed(4), SINK))),
    ),
    Case(
        "batch 5 was begun and failed",
        seen(
            logs(5, 4, at(40, 30), at(50, 45)),
            ledger=ledger(batches=(BATCH_4, batch(5, ranges((40, 50), (30, 45)), BatchStatus.FAILED))),
        ),
        launch(ReplayBatch(FIVE, REPLAYS, (planned(5, at(50, 45)), committed(4), SINK))),
    ),
    Case(
        "batch 5 reads nothing, as a query with state may ask for",
        seen(logs(5, 4, at(40, 30), at(40, 30))),
        launch(ReplayBatch(FIVE, REPLAYS, (planned(5, at(40, 30)), committed(4), SINK))),
    ),
    Case(
        "batch 5 is the first one of a partition that has appeared",
        seen(logs(5, 4, at(40, 30), at(40, 30, 7)), source=source(dict.fromkeys(at(0, 0, 0), (0, 100)))),
        launch(
            ReplayBatch(
                FIVE,
                REPLAYS,
                (
                    planned(5, at(40, 30, 7)),
                    committed(4),
                    SINK,
                ),
            )
        ),
    ),
)
def test_replay_batch_runs_the_same_ranges_again_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


SINK_AT_SEED = Evidence(
    "the sink holds batch 0 and stands at orders-0@40, orders-1@30",
    {"landed": 0, "positions": '{"orders":{"0":40,"1":30}}'},
)
SKIPS = (
    "Batch 4 landed with the ranges that were planned and Spark did not commit it; "
    "Spark runs it again and the sink recognises it."
)


@table(
    Case(
        "batch 4 landed and the commit log ends before it",
        seen(logs(4, 3)),
        launch(SkipLanded(FOUR, SKIPS, (planned(4, at(40, 30)), committed(3), SINK))),
    ),
    Case(
        "batch 4 landed and the commit log is empty",
        seen(logs(4, None)),
        launch(SkipLanded(FOUR, SKIPS, (planned(4, at(40, 30)), committed(None), SINK))),
    ),
    Case(
        "the first generation's seed is batch 0, which Spark has not run yet",
        seen(
            replace(logs(0, None, at(40, 30)), first_checkpointed=None),
            ledger=ledger(0, batches=(batch(0, ranges((40, 40), (30, 30)), BatchStatus.SEEDED),)),
            location=location(ran=frozenset()),
        ),
        launch(
            SkipLanded(
                BatchNumber(0),
                SKIPS.replace("Batch 4", "Batch 0"),
                (planned(0, at(40, 30)), committed(None), SINK_AT_SEED),
            )
        ),
    ),
    Case(
        "a partition that appeared in batch 4 is in no log before it and started at 0",
        seen(
            logs(4, 3, Positions({Partition("orders", 0): 30})),
            ledger=ledger(batches=(batch(4, ranges((30, 40), (0, 30))),)),
        ),
        launch(SkipLanded(FOUR, SKIPS, (planned(4, at(40, 30)), committed(3), SINK))),
    ),
)
def test_skip_landed_lets_the_sink_recognise_the_batch_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


BY_PARTITION = asked(commit=Commit.PARTITION)
SINK_AT_50_45 = Evidence(
    "the sink holds batch 4 and stands at orders-0@50, orders-1@45",
    {"landed": 4, "positions": '{"orders":{"0":50,"1":45}}'},
)


@table(
    Case(
        "batch 5 has landed for one of two partitions",
        seen(
            logs(5, 4, at(40, 30), at(50, 45)),
            ledger=ledger(stands=at(50, 30), batches=(BATCH_4, BEGUN_5)),
            request=BY_PARTITION,
        ),
        launch(
            FinishBatch(
                FIVE,
                "Batch 5 landed for orders-0 only; the rest lands, that part is recognised.",
                (
                    planned(5, at(50, 45)),
                    committed(4),
                    SINK_AT_50_30,
                    Evidence("batch 5 landed for orders-0 only", {"batch": 5, "partitions": ["orders-0"]}),
                ),
            )
        ),
    ),
    Case(
        "batch 5 has landed for every partition and the batch itself has not",
        seen(
            logs(5, 4, at(40, 30), at(50, 45)),
            ledger=ledger(stands=at(50, 45), batches=(BATCH_4, BEGUN_5)),
            request=BY_PARTITION,
        ),
        launch(
            FinishBatch(
                FIVE,
                "Batch 5 landed for orders-0, orders-1 only; the rest lands, that part is recognised.",
                (
                    planned(5, at(50, 45)),
                    committed(4),
                    SINK_AT_50_45,
                    Evidence(
                        "batch 5 landed for orders-0, orders-1 only",
                        {"batch": 5, "partitions": ["orders-0", "orders-1"]},
                    ),
                ),
            )
        ),
    ),
    Case(
        "batch 5 has landed for one partition and reads nothing of the other",
        seen(
            logs(5, 4, at(40, 30), at(50, 30)),
            ledger=ledger(
                stands=at(50, 30), batches=(BATCH_4, batch(5, ranges((40, 50), (30, 30)), BatchStatus.IN_PROGRESS))
            ),
            request=BY_PARTITION,
        ),
        launch(
            FinishBatch(
                FIVE,
                "Batch 5 landed for orders-0 only; the rest lands, that part is recognised.",
                (
                    planned(5, at(50, 30)),
                    committed(4),
                    SINK_AT_50_30,
                    Evidence("batch 5 landed for orders-0 only", {"batch": 5, "partitions": ["orders-0"]}),
                ),
            )
        ),
    ),
)
def test_finish_batch_lands_the_rest_when(case: Case) -> None:
    assert decide(case.seen) == case.decision
