"""Many seeds at once: run them in processes of their own, and look for the first one that finds something."""

from __future__ import annotations

import gc
import logging
import random
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import Phase
from exactlyonce.connectors.specs import Commit
from exactlyonce.reconcile.verdicts import Verdict, kind_of, reason_of
from tests.simulation.asked_resets import RESET
from tests.simulation.at_rest import FRESH_AT_ANY_TIME
from tests.simulation.beside_world import BesideWorld
from tests.simulation.files_replay_world import FilesReplayWorld
from tests.simulation.folder_world import FolderWorld
from tests.simulation.full_log_world import FullLogWorld
from tests.simulation.give_up_world import GiveUpWorld
from tests.simulation.kafka_world import KafkaWorld
from tests.simulation.kinesis_replay_world import KinesisReplayWorld
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.letters_world import LettersWorld
from tests.simulation.loads_replay_world import LoadsReplayWorld
from tests.simulation.log_world import LogWorld
from tests.simulation.manifest_log_world import ManifestLogWorld
from tests.simulation.mutations import (
    HARMLESS,
    MUTATIONS,
    OF_BESIDES,
    OF_FOLDERS,
    OF_FULL_LOGS,
    OF_GIVE_UPS,
    OF_KINESIS,
    OF_KINESIS_REPLAYS,
    OF_KNOWN_LOADS,
    OF_LETTERS,
    OF_MANIFEST_LOGS,
    OF_OBJECT_LOGS,
    OF_REPLAYED_FILES,
    OF_REPLAYED_LOADS,
    OF_REPLAYED_TABLES,
    OF_REPLAYS,
    OF_SHARED_LABELS,
    OF_SNAPSHOTS,
    OF_STAGED_LOADS,
    OF_TABLES,
    OF_TWO_PHASES,
)
from tests.simulation.oracle import Violation, run_seed
from tests.simulation.replay_world import ReplayWorld
from tests.simulation.resets import with_resets
from tests.simulation.scenario import Scenario
from tests.simulation.shared_labels import SharedLabelsWorld
from tests.simulation.snapshot_world import SnapshotWorld
from tests.simulation.staged_world import StagedWorld
from tests.simulation.table_replay_world import TableReplayWorld
from tests.simulation.table_world import TableWorld
from tests.simulation.thawed import thaw
from tests.simulation.two_phase_world import LABELS_EXPIRE, LOADS_ABORTED, SINK_SILENT, TwoPhaseWorld
from tests.simulation.world import SimulatedWorld

CHUNK = 100
SEEDS_TO_FIND_A_MUTATION = 2_000


@dataclass(frozen=True, slots=True)
class Found:
    """A seed that went wrong, and how."""

    seed: int
    words: str


def _few(*hazards: str) -> Callable[[Scenario], Scenario]:
    """Return a scenario in which little goes wrong, so that what a shard went through shows."""
    return lambda drawn: replace(drawn, operators=1, hazards=frozenset(hazards))


def _truncated(drawn: Scenario) -> Scenario:
    """A leader moves and its log is cut. Not with AtLeastOnce: its rows are there before they land, which the oracle counts."""
    return _few("kill driver", "leader moves", "truncate")(drawn.delivered(Delivery.EXACTLY_ONCE))


def _failing_over_by_partition(drawn: Scenario) -> Scenario:
    """A failover may lose the record of a batch whose partitions land one by one."""
    return replace(_few("failover", "kill driver")(drawn.delivered(Delivery.EXACTLY_ONCE)), commit=Commit.PARTITION)


def _topics_left_out(drawn: Scenario) -> Scenario:
    """A person edits what the ledger says of a topic that the resource leaves out and takes back."""
    return _few("topics changed", "edited by hand", "kill driver")(drawn.delivered(Delivery.EXACTLY_ONCE))


def _few_and_another_delivery(drawn: Scenario) -> Scenario:
    hazards = frozenset({"kill driver", "strike at commit", "suspend", "delivery changed"})
    return replace(drawn.with_changing_delivery(), operators=1, hazards=hazards)


def _poisoned(drawn: Scenario) -> Scenario:
    hazards = frozenset({"kill driver", "poison"})
    return replace(drawn.delivered(Delivery.EXACTLY_ONCE).with_quarantine(), operators=1, hazards=hazards)


def _bisected(drawn: Scenario) -> Scenario:
    """A stream that continues without records that fail by themselves."""
    return replace(_poisoned(drawn), bisect=True)


def _bisected_by_partition(drawn: Scenario) -> Scenario:
    hazards = frozenset({"kill driver", "poison", "strike at commit", "task fails late"})
    return replace(_bisected(drawn), commit=Commit.PARTITION, small_batches=False, hazards=hazards)


def _poisoned_and_started_over(drawn: Scenario) -> Scenario:
    """A stream that quarantines, halts because its source is another one or its checkpoint is lost, and starts over."""
    hazards = frozenset({"kill driver", "poison", "truncate", "re-create", "start over"})
    return replace(_poisoned(drawn), hazards=hazards)


def _replayed_and_started_over(drawn: Scenario) -> Scenario:
    """The same beside replays."""
    return _poisoned_and_started_over(drawn)


def _reset(drawn: Scenario) -> Scenario:
    """A person resets the positions of a stream that is suspended, and drivers die."""
    few = frozenset({RESET, "suspend", "kill driver"})
    return replace(with_resets(drawn.delivered(Delivery.EXACTLY_ONCE)), operators=1, hazards=few)


def _gone_back_and_bisected(drawn: Scenario) -> Scenario:
    """A stream that continues without records that fail by themselves, and whose ledger goes back behind its sink."""
    return replace(_bisected(drawn), hazards=frozenset({"kill driver", "poison", "restore", *_GOES_BACK}))


_GOES_BACK = ("failover", "strike at commit", "limit changed")
_CRASHES = _few("kill driver", "strike at commit")
_SUCCESSORS = _few("freeze driver", "lose driver", "kill driver", "strike at commit")
_SUCCESSORS_OF_TABLES = _few("freeze driver", "lose driver", "strike at commit", "cut at commit")
_SUBMISSIONS = _few("kill driver", "strike at commit", SINK_SILENT, LABELS_EXPIRE)
_RESHARDS = _few("kill driver", "reshard", "unlisted")

WORLDS: tuple[tuple[Collection[str], type[SimulatedWorld]], ...] = (
    (OF_FOLDERS, FolderWorld),
    (OF_FULL_LOGS, FullLogWorld),
    (OF_KINESIS, KinesisWorld),
    (OF_KINESIS_REPLAYS, KinesisReplayWorld),
    (OF_LETTERS, LettersWorld),
    (OF_BESIDES, BesideWorld),
    (OF_GIVE_UPS, GiveUpWorld),
    (OF_REPLAYED_FILES, FilesReplayWorld),
    (OF_REPLAYED_LOADS, LoadsReplayWorld),
    (OF_REPLAYED_TABLES, TableReplayWorld),
    (OF_REPLAYS, ReplayWorld),
    (OF_SHARED_LABELS, SharedLabelsWorld),
    (OF_STAGED_LOADS, StagedWorld),
    (OF_TWO_PHASES, TwoPhaseWorld),
    (OF_KNOWN_LOADS, KafkaWorld),
    (OF_SNAPSHOTS, SnapshotWorld),
    (OF_TABLES, TableWorld),
    (OF_MANIFEST_LOGS, ManifestLogWorld),
    (OF_OBJECT_LOGS, LogWorld),
)
"""Where mutations are searched for that the common world has no place for; the first that names one."""

FOCUS: Mapping[str, Callable[[Scenario], Scenario]] = {
    "positions_that_were_left_out_are_not_compared": _topics_left_out,
    "state_of_the_latest_batch": lambda drawn: replace(
        drawn,
        delivery=Delivery.EXACTLY_ONCE,
        commit=Commit.BATCH,
        stateful=True,
        manifest=False,
        operators=1,
        hazards=frozenset({"restore", "lose driver"}),
    ),
    # A log that two write may leave out a partition that came to be meanwhile.
    "absent_partitions_not_refused": lambda drawn: _few("foreign writes", "new partition", "kill driver")(
        drawn.delivered(Delivery.EXACTLY_ONCE)
    ),
    "batches_in_doubt_are_adopted": Scenario.with_dropped_ledger,
    "visible_before_the_ledger_knows": Scenario.with_manifest,
    "orphans_of_running_drivers": Scenario.with_manifest,
    "what_was_not_shown_stays_so": Scenario.with_manifest,
    "a_fenced_driver_judges_the_folder": Scenario.with_manifest,
    "a_ledger_behind_its_files_continues": Scenario.with_restored_ledger,
    "a_ledger_behind_its_table_continues": Scenario.with_restored_ledger,
    "committed_without_an_identifier": lambda drawn: _SUCCESSORS_OF_TABLES(drawn.with_manifest()),
    "a_refused_snapshot_is_put_on_top_of_what_others_added": lambda drawn: _SUCCESSORS_OF_TABLES(drawn.with_manifest()),
    "a_commit_is_bound_to_the_snapshot_alone": lambda drawn: _few("cut at commit")(drawn.with_manifest()),
    "the_tables_number_is_not_asked_for": lambda drawn: _SUCCESSORS_OF_TABLES(drawn.with_manifest()),
    "merged_without_comparing": Scenario.with_manifest,
    "files_that_are_being_merged_are_orphans": Scenario.with_manifest,
    "replaced_files_are_removed_while_they_are_shown": Scenario.with_manifest,
    "batches_are_merged_that_spark_shows_one_by_one": Scenario.with_manifest,
    "sparks_log_is_begun_with_the_first_batch": Scenario.with_manifest,
    "a_former_query_does_not_count_for_the_first_number": Scenario.with_manifest,
    "files_of_a_former_query_are_orphans": Scenario.with_manifest,
    "witnesses_not_required": lambda drawn: drawn.delivered(Delivery.AT_LEAST_ONCE),
    "a_taken_batch_counts_as_landed": lambda drawn: drawn.delivered(Delivery.AT_MOST_ONCE),
    # Each of them makes a generation necessary while a batch is taken.
    "a_generation_is_published_over_a_taken_batch": lambda drawn: _few(
        "failover", "limit changed", "lose driver", "lose checkpoint"
    )(drawn.delivered(Delivery.AT_MOST_ONCE)),
    # A log that two write may start a batch elsewhere than the one that landed.
    "the_start_of_a_landed_batch_is_not_compared": lambda drawn: _few("foreign writes", "kill driver")(
        drawn.delivered(Delivery.EXACTLY_ONCE)
    ),
    "partitions_land_unrecorded": _failing_over_by_partition,
    **dict.fromkeys(OF_KNOWN_LOADS, _few("kill driver", *_GOES_BACK)),
    "a_load_names_records_that_it_was_made_without": _gone_back_and_bisected,
    "the_latest_loads_are_those_of_a_batch_that_is_kept": _gone_back_and_bisected,
    "what_a_found_load_does_not_hold_is_passed_over": _gone_back_and_bisected,
    "taken_batches_are_told_by_at_most_once_alone": _few_and_another_delivery,
    "a_batch_that_landed_in_part_is_finished_by_any_delivery": _few_and_another_delivery,
    # Where little else goes wrong, batches land, and what was asked for takes effect late.
    "a_later_generation_is_not_looked_for": lambda drawn: replace(
        drawn.delivered(Delivery.EXACTLY_ONCE),
        operators=1,
        hazards=frozenset({"restore", "lose checkpoint", "lose status", "kill driver"}),
    ),
    "unknown_commit_settled_by_a_plain_read": lambda drawn: replace(
        drawn.delivered(Delivery.EXACTLY_ONCE), operators=1, hazards=frozenset({"cut at commit", "kill driver"})
    ),
    "absent_entries_taken_for_not_landed": lambda drawn: replace(
        drawn, operators=1, hazards=frozenset({"cut at commit", "kill driver"})
    ),
    "positions_move_past_a_batch_that_no_failure_names": _poisoned,
    "partitions_that_have_landed_are_quarantined_too": lambda drawn: replace(
        _poisoned(drawn), commit=Commit.PARTITION, small_batches=False
    ),
    "any_batch_is_quarantined_once_one_is_to_be": _poisoned,
    "a_quarantined_range_that_is_read_again_stays_replayable": _poisoned_and_started_over,
    "records_are_left_out_that_no_failure_names": _bisected,
    "what_stands_beside_a_failing_record_is_left_out_with_it": _bisected,
    "a_half_is_taken_for_the_failing_one_and_not_tried": _bisected,
    "what_a_partition_leaves_out_is_recorded_once_the_batch_has_landed": _bisected_by_partition,
    "what_is_tried_is_written": _bisected,
    "rows_are_made_again_of_what_was_left_out": lambda drawn: replace(
        _bisected(drawn), hazards=frozenset({"kill driver", "poison", "strike at commit", LOADS_ABORTED, SINK_SILENT})
    ),
    "a_range_that_a_replay_has_taken_stays_its_own": _replayed_and_started_over,
    "a_range_that_is_given_up_keeps_its_claim": _poisoned,
    "a_range_is_given_up_without_a_lock": _poisoned,
    "what_was_given_up_stays_so_when_it_is_read_again": _replayed_and_started_over,
    "skipped_records_leave_no_trace": _reset,
    "what_is_to_be_kept_is_given_up": _reset,
    "what_was_skipped_stays_lost_when_it_is_read_again": _reset,
    "a_reset_acts_at_each_launch": _reset,
    "positions_that_have_moved_are_reset": lambda drawn: replace(_reset(drawn), commit=Commit.PARTITION),
    "a_reset_without_the_fence": lambda drawn: replace(_reset(drawn), operators=2),
    # Where nothing says what became of the load: anything else is finished before a stream rests.
    "a_reset_runs_over_a_decided_batch": lambda drawn: replace(
        _reset(drawn), hazards=_reset(drawn).hazards | {"strike at commit", SINK_SILENT, LABELS_EXPIRE, LOADS_ABORTED}
    ),
    "a_forgotten_load_of_a_replay_counts_as_aborted": _few("kill driver", "poison", LABELS_EXPIRE, SINK_SILENT),
    "a_leader_may_change_while_a_batch_is_read": _truncated,
    "a_new_start_forgets_what_is_decided": _few("kill driver", "strike at commit", FRESH_AT_ANY_TIME, SINK_SILENT),
    "a_halting_verdict_starts_no_driver_without_a_query": _few(
        "kill driver", "strike at commit", "re-create", SINK_SILENT
    ),
    "a_stream_rests_whatever_is_decided": _few("kill driver", "strike at commit", "suspend"),
    "whoever_finishes_takes_the_checkpoint": _few(
        "freeze driver", "lose driver", "strike at commit", "suspend", SINK_SILENT
    ),
    "committed_before_the_decision": _CRASHES,
    "labels_without_the_epoch": _SUCCESSORS,
    "an_answer_counts_for_every_load_of_the_batch": _few(
        "kill driver", "strike at commit", LABELS_EXPIRE, LOADS_ABORTED, SINK_SILENT
    ),
    "what_is_under_a_shared_label_is_taken_for_ones_own": lambda drawn: replace(
        _few("kill driver", "poison")(drawn), small_batches=False
    ),
    "rows_written_again_take_a_label_of_the_batch": _few("kill driver", "strike at commit", LOADS_ABORTED),
    "not_found_taken_for_aborted": _few("kill driver", "strike at commit", LABELS_EXPIRE, LOADS_ABORTED),
    "the_next_batch_is_decided_before_this_one_landed": _few("kill driver", SINK_SILENT),
    "a_decided_load_is_aborted": _CRASHES,
    "rows_written_again_are_committed_unrecorded": _few("kill driver", "strike at commit", SINK_SILENT, LOADS_ABORTED),
    "loads_of_a_successor_are_aborted": _SUCCESSORS,
    "rows_are_made_again_of_other_records": _few(
        "kill driver", "strike at commit", LOADS_ABORTED, "truncate", "re-create"
    ),
    "submitted_before_the_decision": _CRASHES,
    "submitted_before_the_record": _SUBMISSIONS,
    "a_load_that_is_not_found_is_submitted_again": _SUBMISSIONS,
    "a_forgotten_load_counts_as_never_submitted": _SUBMISSIONS,
    "rows_are_made_again_while_their_file_is_there": _few("kill driver", SINK_SILENT),
    "a_load_that_finished_is_not_counted": _few(
        "kill driver", "lose driver", "strike at commit", SINK_SILENT, LABELS_EXPIRE, LOADS_ABORTED
    ),
    "a_load_in_part_counts_as_cancelled": _few("kill driver", LOADS_ABORTED),
    "files_are_removed_once_the_batch_has_landed": _CRASHES,
    "children_are_read_before_their_parents_end": _RESHARDS,
    "the_end_of_a_shard_is_not_recorded": _RESHARDS,
    "a_parent_that_is_listed_again_is_read_again": _RESHARDS,
    "a_shard_appears_before_its_descendants_are_listed": _RESHARDS,
    "the_oldest_record_of_a_shard_is_read_before_it_is_named": _few("kill driver", "retention", "suspend"),
    "a_gap_of_retention_is_not_noticed": _few("kill driver", "retention"),
    "a_stream_that_was_recreated_is_taken_for_the_same": _few("kill driver", "re-create"),
    "a_range_is_lost_as_a_whole_once_its_beginning_has_expired": lambda drawn: replace(
        _poisoned(drawn), hazards=frozenset({"kill driver", "poison", "retention"})
    ),
    "a_rebuilt_generation_forgets_its_lists": _few("kill driver", "lose driver"),
    "a_folder_is_believed_without_its_digest": _few("kill driver", "lose lists", "files late", "lose checkpoint"),
    "a_file_that_was_read_is_not_compared": _few("kill driver", "file changes"),
    "what_is_read_need_not_be_what_was_planned": _few("kill driver", "file changes", "strike at commit"),
    "what_was_planned_and_is_gone_is_not_told": _few("kill driver", "lose driver", "file vanishes"),
    # With a hazard of folders, or the world would draw others that hide it.
    "whoever_removes_what_has_landed_misses_nothing": _few("kill driver", "restore", "files late"),
}
"""Where alone a mutation shows, if what it takes away is rarely asked for: beside all hazards most runs end otherwise."""


def workers() -> ProcessPoolExecutor:
    """Return processes that run seeds, one a core."""
    return ProcessPoolExecutor(initializer=_prepare)


def violations_in(first: int, until: int, kind: type[SimulatedWorld] = SimulatedWorld) -> list[Found]:
    """Run the seeds `[first, until)` and return those that went wrong."""
    found = []
    for seed in range(first, until):
        try:
            run_seed(seed, kind=kind)
        except Violation as problem:
            found.append(Found(seed, str(problem)))
    return found


@dataclass(frozen=True, slots=True)
class Chunk:
    """The seeds `[first, until)` have run: what went wrong, and what came about in those that did not."""

    first: int
    until: int
    wrong: tuple[Found, ...]
    verdicts: Counter[str]
    hazards: Counter[str]
    halted: int


def run_chunk(first: int, until: int) -> Chunk:
    """Run the seeds `[first, until)` and count what the world has seen."""
    wrong: list[Found] = []
    verdicts: Counter[str] = Counter()
    hazards: Counter[str] = Counter()
    halted = 0
    for seed in range(first, until):
        try:
            world = run_seed(seed)
        except Violation as problem:
            wrong.append(Found(seed, str(problem)))
            continue
        decisions = [attempt.decision for attempt in world.journal.attempts if attempt.decision is not None]
        verdicts.update(_told(decision.verdict) for decision in decisions)
        hazards.update({fault.kind for fault in world.journal.faults})
        halted += world.statuses.status.phase is Phase.HALTED
    return Chunk(first, until, tuple(wrong), verdicts, hazards, halted)


def _told(verdict: Verdict) -> str:
    code = reason_of(verdict)
    return kind_of(verdict) if code is None else f"{kind_of(verdict)} ({code})"


def scenario_of(name: str, seed: int) -> Scenario | None:
    """Return the scenario in which a mutation is searched for; None for the one that the seed draws."""
    return FOCUS[name](Scenario.draw(random.Random(seed))) if name in FOCUS else None


def first_that_finds(name: str, seeds: int, tried_first: int | None = None) -> Found | None:
    """Return the first of so many seeds that goes wrong with the mutation, or with the part of one, of this name.

    `tried_first` is a seed that found it before; where it still does, no other one is tried. A seed that goes wrong without the
    mutation, too, has found something else.
    """
    untried = iter((*(() if tried_first is None else (tried_first,)), *range(seeds)))
    while True:
        with {**MUTATIONS, **HARMLESS}[name]():
            found = _first_violation(name, untried)
        if found is None or _first_violation(name, (found.seed,)) is None:
            return found


def found_by(name: str, seed: int | None) -> Found | None:
    """Return what one seed finds with the mutation of this name; None where it finds nothing, or there is no seed."""
    return None if seed is None else first_that_finds(name, 0, seed)


def first_that_goes_wrong(name: str, seeds: int) -> Found | None:
    """Return the first of so many seeds that goes wrong where a mutation of this name is searched for, but without it."""
    return _first_violation(name, range(seeds))


def _first_violation(name: str, seeds: Iterable[int]) -> Found | None:
    kind = kind_of_world(name)
    for seed in seeds:
        try:
            run_seed(seed, scenario_of(name, seed), kind)
        except Violation as problem:
            return Found(seed, str(problem))
    return None


def kind_of_world(name: str) -> type[SimulatedWorld]:
    """Return the kind of world in which a mutation is searched for."""
    return next((world for names, world in WORLDS if name in names), SimulatedWorld)


def _prepare() -> None:
    """A run leaves cycles of greenlets behind; collecting them less often costs a few megabytes and saves a tenth."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever whoever starts them does about it
    thaw()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    logging.disable()  # a driver that says what it does says it in every one of the seeds
