"""The protocol, broken on purpose: each mutation takes one rule away, and the simulation must find every one.

A mutation patches the product's own code for the length of a `with` block; nothing here is a second copy of it. Its docstring
says what it takes away: docs/adr/0006 shows the first sentence (`python -m tests.simulation.mutation_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.mutations import (
    besides,
    decisions,
    fencing,
    finishes,
    folders,
    full_logs,
    give_ups,
    keeping,
    kinesis,
    kinesis_replays,
    known_loads,
    landings,
    letters,
    manifest_logs,
    manifests,
    object_log,
    quarantines,
    replayed_files,
    replayed_loads,
    replayed_tables,
    replays,
    resets,
    shared_labels,
    snapshots,
    sources,
    staged_loads,
    tables,
    two_phases,
)

Mutation = Callable[[], Any]

MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        fencing.no_lock_at_the_fence,
        fencing.no_claim,
        fencing.decided_before_the_raise,
        fencing.tickets_not_asked_for,
        keeping.retention_takes_what_a_decision_needs,
        keeping.the_current_generation_is_removed_too,
        keeping.generations_are_removed_before_a_batch_has_landed,
        landings.offsets_alone_identify_a_batch,
        landings.ranges_from_the_file,
        landings.staging_without_tags,
        landings.staged_rows_not_counted,
        landings.unknown_commit_settled_by_a_plain_read,
        landings.no_compare_and_set,
        landings.tasks_do_not_compare,
        landings.partitions_land_unrecorded,
        landings.second_tries_are_let_through,
        landings.retention_not_checked,
        landings.landed_batches_not_recognised,
        landings.witnesses_not_required,
        landings.synchronous_commit_not_forced,
        landings.a_batch_of_partitions_is_not_closed,
        landings.absent_partitions_not_refused,
        landings.a_taken_batch_counts_as_landed,
        manifests.visible_before_the_ledger_knows,
        manifests.orphans_of_running_drivers,
        manifests.what_was_not_shown_stays_so,
        manifests.a_fenced_driver_judges_the_folder,
        manifests.a_ledger_behind_its_files_continues,
        manifests.merged_without_comparing,
        manifests.files_that_are_being_merged_are_orphans,
        manifests.replaced_files_are_removed_while_they_are_shown,
        manifests.batches_are_merged_that_spark_shows_one_by_one,
        manifests.sparks_log_is_begun_with_the_first_batch,
        manifests.a_former_query_does_not_count_for_the_first_number,
        manifests.files_of_a_former_query_are_orphans,
        decisions.seed_without_its_commit,
        decisions.truncation_not_noticed,
        decisions.given_up_although_it_is_there,
        decisions.state_known_after_the_first_records_only,
        decisions.a_topic_that_is_named_again_starts_over,
        decisions.state_of_the_latest_batch,
        decisions.state_begins_empty,
        decisions.batches_in_doubt_are_adopted,
        decisions.the_status_is_no_evidence,
        decisions.a_proposal_counts_as_landed,
        decisions.the_predecessor_is_always_dead,
        decisions.the_ledger_is_not_compared_with_itself,
        decisions.positions_that_were_left_out_are_not_compared,
        decisions.a_later_generation_is_not_looked_for,
        decisions.the_start_of_a_landed_batch_is_not_compared,
        decisions.taken_batches_are_not_told,
        decisions.taken_batches_are_told_by_at_most_once_alone,
        decisions.a_batch_that_landed_in_part_is_finished_by_any_delivery,
        decisions.a_generation_is_published_over_a_taken_batch,
        decisions.numbers_start_over_with_a_generation,
        decisions.a_batch_that_was_too_large_runs_again,
        decisions.a_smaller_limit_stays,
        decisions.a_batch_too_large_after_growth_runs_again,
        sources.fingerprints_not_compared,
        sources.zero_id_taken_for_an_id,
        sources.a_new_leader_is_believed,
        sources.a_leader_may_change_while_a_batch_is_read,
        sources.leader_epochs_are_believed_without_an_id,
        sources.fingerprints_lost_with_the_generation,
        quarantines.positions_move_past_a_batch_that_no_failure_names,
        quarantines.partitions_that_have_landed_are_quarantined_too,
        quarantines.any_batch_is_quarantined_once_one_is_to_be,
        quarantines.a_quarantined_range_that_is_read_again_stays_replayable,
        quarantines.records_are_left_out_that_no_failure_names,
        quarantines.what_stands_beside_a_failing_record_is_left_out_with_it,
        quarantines.a_half_is_taken_for_the_failing_one_and_not_tried,
        quarantines.what_a_partition_leaves_out_is_recorded_once_the_batch_has_landed,
        quarantines.what_is_tried_is_written,
        replays.a_replay_lands_what_it_has_not_claimed,
        replays.a_replay_looks_without_a_lock,
        replays.a_range_that_a_replay_has_taken_stays_its_own,
        replays.a_replay_marks_a_range_whose_rows_it_has_not_written,
        replays.a_replay_moves_the_positions,
        replays.what_is_left_of_a_range_overlaps_what_landed,
        replays.a_replay_does_not_compare_the_source,
        replayed_files.files_of_a_replay_are_listed_before_its_claim_is_compared,
        replayed_files.files_of_a_replay_that_is_at_work_are_orphans,
        replayed_files.what_a_batch_has_taken_over_stays,
        replayed_files.what_a_replay_has_landed_is_no_batchs,
        replayed_files.what_no_batch_has_taken_over_does_not_count,
        replayed_loads.a_replay_commits_its_load_before_the_decision,
        replayed_loads.a_replay_decides_what_it_does_not_hold,
        replayed_loads.what_a_replay_has_decided_is_taken_by_the_next,
        replayed_loads.a_forgotten_load_of_a_replay_counts_as_aborted,
        replayed_loads.a_forgotten_load_of_a_replay_counts_as_landed,
        replayed_loads.an_aborted_load_of_a_replay_has_landed,
        replayed_loads.what_a_replay_may_still_commit_counts_as_aborted,
        replayed_loads.a_number_that_the_sink_knows_is_passed_over,
        replayed_loads.what_another_replay_has_decided_meanwhile_is_not_looked_for,
        replayed_tables.a_batch_is_committed_without_what_it_took_over,
        replayed_tables.what_a_batch_took_over_is_committed_in_a_version_of_its_own,
        replayed_tables.what_a_batch_takes_over_is_taken_before_the_batch_lands,
        replayed_tables.what_waits_is_committed_by_whoever_starts,
        object_log.objects_created_without_a_condition,
        object_log.names_pruned_before_two_snapshots,
        object_log.a_fold_misses_the_tail,
        object_log.unknown_creates_taken_for_failed,
        object_log.archives_taken_for_written,
        object_log.absent_entries_taken_for_not_landed,
        object_log.entries_in_a_gap_are_believed,
        full_logs.a_raise_obeys_the_limit,
        full_logs.a_full_log_takes_further_ranges,
        full_logs.nothing_is_deleted_while_there_is_no_driver,
        manifest_logs.what_is_in_an_archive_hides_what_was_written_since,
        two_phases.committed_before_the_decision,
        two_phases.labels_without_the_epoch,
        two_phases.not_found_taken_for_aborted,
        two_phases.the_next_batch_is_decided_before_this_one_landed,
        two_phases.a_decided_load_is_aborted,
        two_phases.rows_written_again_are_committed_unrecorded,
        two_phases.loads_of_a_successor_are_aborted,
        two_phases.rows_are_made_again_of_other_records,
        two_phases.an_answer_counts_for_every_load_of_the_batch,
        kinesis.children_are_read_before_their_parents_end,
        kinesis.a_batch_inside_an_aggregate_continues_behind_it,
        kinesis.the_end_of_a_shard_is_not_recorded,
        kinesis.the_oldest_record_of_a_shard_is_read_before_it_is_named,
        kinesis.a_parent_that_is_listed_again_is_read_again,
        kinesis.a_shard_appears_before_its_descendants_are_listed,
        kinesis.a_gap_of_retention_is_not_noticed,
        kinesis.a_stream_that_was_recreated_is_taken_for_the_same,
        kinesis.a_start_at_the_latest_skips,
        shared_labels.what_is_under_a_shared_label_is_taken_for_ones_own,
        shared_labels.rows_written_again_take_a_label_of_the_batch,
        staged_loads.submitted_before_the_decision,
        staged_loads.submitted_before_the_record,
        staged_loads.a_load_that_is_not_found_is_submitted_again,
        staged_loads.a_forgotten_load_counts_as_never_submitted,
        staged_loads.rows_are_made_again_while_their_file_is_there,
        staged_loads.a_load_that_finished_is_not_counted,
        staged_loads.files_are_removed_once_the_batch_has_landed,
        staged_loads.a_load_in_part_counts_as_cancelled,
        resets.skipped_records_leave_no_trace,
        resets.what_is_to_be_kept_is_given_up,
        resets.what_was_skipped_stays_lost_when_it_is_read_again,
        resets.a_reset_acts_at_each_launch,
        resets.positions_that_have_moved_are_reset,
        resets.a_reset_without_the_fence,
        finishes.a_new_start_forgets_what_is_decided,
        finishes.a_halting_verdict_starts_no_driver_without_a_query,
        finishes.a_stream_rests_whatever_is_decided,
        finishes.whoever_finishes_takes_the_checkpoint,
        two_phases.a_reset_runs_over_a_decided_batch,
        letters.a_dead_letter_is_landed_without_being_compared,
        letters.a_setting_back_leaves_dead_letters_as_they_are,
        letters.a_letter_that_a_replay_has_taken_is_not_superseded,
        letters.a_dead_letter_is_marked_before_its_row_is_written,
        letters.a_letter_that_is_malformed_again_counts_as_replayed,
        letters.a_later_letter_counts_as_read_again,
        two_phases.rows_are_made_again_of_what_was_left_out,
        known_loads.the_number_of_the_sinks_latest_batch_is_compared,
        known_loads.an_empty_seed_takes_the_place_of_the_latest_loads,
        known_loads.the_latest_loads_are_those_of_a_batch_that_is_kept,
        known_loads.what_the_sink_showed_before_a_decision_is_not_kept,
        known_loads.rows_made_again_are_not_among_the_latest_loads,
        known_loads.a_load_that_is_in_the_sink_moves_no_position,
        known_loads.what_a_found_load_does_not_hold_is_passed_over,
        known_loads.a_load_names_records_that_it_was_made_without,
        tables.committed_before_the_ledger_knows,
        tables.committed_without_an_identifier,
        tables.the_tables_number_is_not_asked_for,
        tables.what_was_not_committed_stays_so,
        tables.a_ledger_behind_its_table_continues,
        snapshots.a_refused_snapshot_is_put_on_top_of_what_others_added,
        snapshots.the_tables_number_goes_with_its_snapshot,
        snapshots.an_expired_snapshot_counts_as_rolled_back,
        snapshots.a_commit_is_bound_to_the_snapshot_alone,
        letters.a_range_is_taken_up_that_the_stream_has_landed,
        letters.a_malformed_record_that_is_left_out_is_kept_as_a_letter_too,
        besides.a_replay_lands_into_a_sink_that_the_stream_has_left,
        besides.a_backfill_lands_where_the_stream_does,
        besides.a_backfill_forgets_what_is_behind_a_chunk,
        besides.a_backfill_takes_one_part_alone,
        besides.a_backfill_lands_what_it_has_not_claimed,
        besides.two_backfills_of_one_name_look_without_a_lock,
        besides.a_backfill_moves_on_without_its_rows,
        besides.a_backfill_that_is_there_is_planned_again,
        give_ups.a_range_that_is_given_up_keeps_its_claim,
        give_ups.a_range_is_given_up_without_a_lock,
        give_ups.what_was_given_up_stays_so_when_it_is_read_again,
        folders.a_rebuilt_generation_forgets_its_lists,
        folders.a_folder_is_believed_without_its_digest,
        folders.a_file_that_was_read_is_not_compared,
        folders.what_is_read_need_not_be_what_was_planned,
        folders.files_are_removed_once_they_are_planned,
        folders.what_was_planned_and_is_gone_is_not_told,
        folders.whoever_removes_what_has_landed_misses_nothing,
        kinesis_replays.a_range_is_lost_as_a_whole_once_its_beginning_has_expired,
    )
}
"""Each of these loses or doubles a record, leaves the stream stuck, or costs an attempt that nothing explains."""

HARMLESS: dict[str, Mutation] = {
    landings.a_second_landing_is_let_through.__name__: landings.a_second_landing_is_let_through
}
"""What a mutation takes away beside its own rule; alone it must break nothing, or the mutation would prove nothing."""

OF_OBJECT_LOGS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == object_log.__name__)
"""What only a world whose ledger is an object log can notice."""

OF_FULL_LOGS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == full_logs.__name__)
"""What only a world can notice whose object log is soon full."""

OF_MANIFEST_LOGS = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == manifest_logs.__name__
)
"""What only a world of files can notice whose ledger is an object log."""

OF_TABLES = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == tables.__name__)
"""What only a world can notice whose sink is a table with a log."""

OF_SNAPSHOTS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == snapshots.__name__)
"""What only a world can notice whose sink is a table of snapshots."""

OF_TWO_PHASES = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ in (two_phases.__name__, finishes.__name__)
)
"""What only a world whose sink takes loads in two phases can notice."""

OF_KNOWN_LOADS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == known_loads.__name__)
"""Those of a ledger that goes back behind its sink: searched for over a topic."""

OF_SHARED_LABELS = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == shared_labels.__name__
)
"""What only a world can notice in which labels name neither epoch nor run of a task."""

OF_STAGED_LOADS = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == staged_loads.__name__
)
"""What only a world can notice whose sink commits a load once it is submitted."""

OF_REPLAYS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == replays.__name__)
"""What only a world can notice in which replays run beside the stream."""

OF_REPLAYED_FILES = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == replayed_files.__name__
)
"""What only a world can notice in which replays land in files."""

OF_REPLAYED_LOADS = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == replayed_loads.__name__
)
"""What only a world can notice in which replays land in a sink of two phases."""
OF_REPLAYED_TABLES = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == replayed_tables.__name__
)
"""Those that only a world of replays into a table with a log can show."""

OF_GIVE_UPS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == give_ups.__name__)
"""What only a world can notice in which people give up what is in quarantine."""

OF_BESIDES = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == besides.__name__)
"""What only a world can notice in which the sink is changed beside replays."""

OF_LETTERS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == letters.__name__)
"""What only a world can notice that keeps dead letters and replays them."""

OF_KINESIS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == kinesis.__name__)
"""What only a world whose source is a Kinesis stream can notice."""

OF_KINESIS_REPLAYS = frozenset(
    name for name, mutation in MUTATIONS.items() if mutation.__module__ == kinesis_replays.__name__
)
"""What only a world can notice in which a Kinesis stream's quarantine is replayed."""

OF_FOLDERS = frozenset(name for name, mutation in MUTATIONS.items() if mutation.__module__ == folders.__name__)
"""What only a world whose source is a folder can notice."""
