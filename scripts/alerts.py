"""The alerts, told once: `scripts.alert_rules` makes the chart's rules and the plain file of rules from them.

A threshold stands as `${name}` in an expression. Its default, and each alert's default severity and `for`, are those of the
chart's values.schema.json, below `metrics.prometheusRule.alerts`. `min by` and `max by` take the operator's replicas together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Alert:
    """One alert: its expression, and what it tells a person. Its page is docs/runbooks/NAME.md."""

    name: str
    expression: str
    summary: str
    action: str
    comment: str = ""


@dataclass(frozen=True)
class Group:
    """Alerts that are evaluated together; `interval` is Prometheus' own where it is None."""

    name: str
    alerts: tuple[Alert, ...]
    interval: str | None = None


_STREAM = "{{ $labels.namespace }}/{{ $labels.stream }}"
_STATUS = "`exactlyonce status {{ $labels.stream }} -n {{ $labels.namespace }}`"
_FAILURES = "`exactlyonce failures {{ $labels.stream }} -n {{ $labels.namespace }} --status"

_OLDEST = """min by (namespace, stream) (
    exactlyonce_stream_oldest_not_landed_timestamp_seconds
      or (
        last_over_time(exactlyonce_driver_oldest_not_landed_timestamp_seconds[1h])
          and last_over_time(exactlyonce_driver_not_landed_files[1h]) > 0
          and (
            last_over_time(exactlyonce_driver_listing_start_timestamp_seconds[1h])
              == on (namespace, stream) group_left ()
            max by (namespace, stream) (last_over_time(exactlyonce_driver_listing_start_timestamp_seconds[1h]))
          )
          unless on (namespace, stream) (
            exactlyonce_stream_oldest_not_landed_timestamp_seconds or exactlyonce_stream_not_landed_files == 0
          )
      )
  )"""
"""When the oldest that waits was written. Of a folder its driver tells it: what the latest one said last, for an hour, unless
the operator has counted since, while no driver runs.
"""

GROUPS = (
    Group(
        "exactlyonce-streams",
        (
            Alert(
                "ExactlyOnceLagHigh",
                f"""(
  time() - {_OLDEST}
    > on (namespace, stream)
  max by (namespace, stream) (exactlyonce_stream_lag_objective_seconds)
)
unless on (namespace, stream) (exactlyonce_stream_phase{{phase=~"Suspended|Completed"}} == 1)""",
                f"{_STREAM} is {{{{ $value | humanizeDuration }}}} behind its source, more than its objective.",
                f"Run {_STATUS}: it says whether the driver runs, what its last verdict was and which store does not "
                "answer.",
            ),
            Alert(
                "ExactlyOnceNothingLands",
                f"""(
  time() - max by (namespace, stream) (exactlyonce_stream_last_landed_timestamp_seconds) > ${{seconds}}
    and on (namespace, stream)
  time() - {_OLDEST} > ${{seconds}}
)
unless on (namespace, stream) (exactlyonce_stream_phase{{phase=~"Suspended|Completed|Halted"}} == 1)""",
                f"{_STREAM} has landed no batch for {{{{ $value | humanizeDuration }}}} while records wait.",
                "Look at the driver's pod and log: it does not start, its batch takes longer than that, or it is "
                "frozen.",
            ),
            Alert(
                "ExactlyOnceCommitDelayed",
                "time() - max by (namespace, stream) (exactlyonce_stream_decided_timestamp_seconds) > ${seconds}",
                f"A batch of {_STREAM} was decided {{{{ $value | humanizeDuration }}}} ago, and the sink has not committed all "
                "of it.",
                "Let its driver run and reach the sink: the sink aborts what is prepared for too long, and forgets labels. A "
                "stream that is suspended, or has halted, commits nothing.",
                "It fires for suspended and completed streams too: only their driver can commit the batch.",
            ),
            Alert(
                "ExactlyOnceManyLoads",
                """(
  0 * sum by (namespace, stream, into) (increase(exactlyonce_driver_loads_total[1h]) > 0)
    + on (into) group_left ()
  sum by (into) (increase(exactlyonce_driver_loads_total[1h]))
) >= ${count}""",
                f"{_STREAM} and others into {{{{ $labels.into }}}} have made {{{{ $value | humanize }}}} loads in the last "
                "hour; Doris remembers 2,000 per database.",
                "Give them larger batches (a longer trigger.interval, a higher limit per batch) or fewer tasks, or raise "
                "label_num_threshold of the frontends: a load that is forgotten while no driver runs leaves its stream in "
                "doubt.",
                "Streams into one database share its labels, so their loads are counted together; it fires for each of them.",
            ),
            Alert(
                "ExactlyOnceStreamHalted",
                'max by (namespace, stream) (exactlyonce_stream_phase{phase="Halted"}) == 1',
                f"{_STREAM} has halted: continuing would lose records or land them twice.",
                f"Run {_STATUS}, read the verdict and its evidence, and do what it says. It does not resume by itself.",
            ),
            Alert(
                "ExactlyOnceRetentionRisk",
                "min by (namespace, stream) (exactlyonce_stream_retention_remaining_seconds) < ${seconds}",
                f"The source's retention reaches records of {_STREAM} that have not landed in "
                "{{ $value | humanizeDuration }}.",
                "Raise the retention now, of the topic (retention.ms, retention.bytes) or of the data stream; then find "
                "out why the stream does not catch up.",
            ),
            Alert(
                "ExactlyOnceCrashLoop",
                "max by (namespace, stream) (exactlyonce_stream_consecutive_failures) >= ${count}",
                f"The last {{{{ $value }}}} drivers of {_STREAM} ended without landing a batch.",
                f"{_STATUS} shows how the last one ended and its last message.",
            ),
            Alert(
                "ExactlyOncePoisonBatch",
                "max by (namespace, stream) (exactlyonce_stream_batch_failures) >= ${count}",
                f"One batch of {_STREAM} has failed {{{{ $value }}}} times; after "
                "recovery.maxFailuresPerBatch, recovery.onPoisonBatch decides.",
                "The driver's last message names the record or the constraint: correct the data, the table or the "
                "transform.",
            ),
            Alert(
                "ExactlyOnceRecordsLost",
                """max by (namespace, stream) (exactlyonce_stream_lost_records)
  - min by (namespace, stream) (min_over_time(exactlyonce_stream_lost_records[1h])) > 0""",
                f"{{{{ $value }}}} offsets of {_STREAM} take no effect: they were recorded as lost in the last hour.",
                f"{_FAILURES} Lost` lists their ranges and the reason; nothing else was lost.",
            ),
            Alert(
                "ExactlyOnceRecordsQuarantined",
                """max by (namespace, stream) (exactlyonce_stream_quarantined_records)
  - min by (namespace, stream) (min_over_time(exactlyonce_stream_quarantined_records[1h])) > 0""",
                f"{_STREAM} passed over {{{{ $value }}}} offsets in the last hour, because their batch failed too often.",
                f"{_FAILURES} Quarantined` lists their ranges and the error: correct the data, the table or the transform.",
            ),
            Alert(
                "ExactlyOnceHeldTooLong",
                "time() - min by (namespace, stream) (exactlyonce_stream_quarantined_since_timestamp_seconds) > ${seconds}",
                f"Records of {_STREAM} have been in quarantine for {{{{ $value | humanizeDuration }}}}.",
                f"Replay them while the source holds them: {_FAILURES} Quarantined` says why they failed.",
            ),
            Alert(
                "ExactlyOnceQuarantineNearlyFull",
                """max by (namespace, stream) (exactlyonce_stream_quarantined_records)
  / on (namespace, stream) max by (namespace, stream) (exactlyonce_stream_quarantine_limit_records)
  * 100 >= ${percent}""",
                f'{_STREAM} has {{{{ $value | printf "%.0f" }}}}% of recovery.maxQuarantined in quarantine; it halts instead '
                "of exceeding that.",
                "Correct what the errors of the ranges name and replay them, or raise recovery.maxQuarantined.",
            ),
            Alert(
                "ExactlyOnceReplayStuck",
                "time() - min by (namespace, stream, replay) "
                "(exactlyonce_stream_replay_progressed_timestamp_seconds) > ${seconds}",
                f"The StreamReplay {{{{ $labels.replay }}}} of {_STREAM} has landed nothing for "
                "{{ $value | humanizeDuration }}.",
                "Its message says what it waits for: `kubectl get streamreplay {{ $labels.replay }} -n {{ $labels.namespace }} "
                "-o wide`.",
            ),
            Alert(
                "ExactlyOnceReplayInDoubt",
                "max by (namespace, stream) (exactlyonce_stream_replay_decided_ranges) > 0",
                f"A replay of {_STREAM} has decided {{{{ $value }}}} ranges, and nobody has recorded since whether the sink "
                "has committed their rows.",
                "Run another replay, or let the driver run: either finds out. What the sink has forgotten is listed by "
                "`exactlyonce failures settle`, and waits for your answer.",
            ),
            Alert(
                "ExactlyOnceSourceUnreachable",
                "min by (namespace, stream) (exactlyonce_stream_source_up) == 0",
                f"The source of {_STREAM} does not answer the operator, or not for all of its partitions.",
                "The condition Measured of the stream shows its answer; the lag that is shown is what was last known.",
            ),
            Alert(
                "ExactlyOnceLedgerUnreachable",
                "min by (namespace, stream) (exactlyonce_stream_ledger_up) == 0",
                f"The ledger of {_STREAM} does not answer the operator.",
                "The condition Measured of the stream shows its answer. Without the ledger nothing lands and "
                "no driver is started.",
            ),
            Alert(
                "ExactlyOnceNeverLanded",
                """(
  time() - max by (namespace, stream) (exactlyonce_stream_created_timestamp_seconds) > ${seconds}
    and on (namespace, stream) max by (namespace, stream) (exactlyonce_stream_has_landed) == 0
)
unless on (namespace, stream) (
  max by (namespace, stream) (exactlyonce_stream_lag_records)
    unless on (namespace, stream) exactlyonce_stream_oldest_not_landed_timestamp_seconds
)
unless on (namespace, stream) (exactlyonce_stream_phase{phase=~"Suspended|Completed|Halted"} == 1)""",
                f"{_STREAM} was created {{{{ $value | humanizeDuration }}}} ago and has never landed a batch.",
                f"Run {_STATUS}: it says what the stream waits for. Usually the image, the service account, the quota, "
                "a secret or the address of a store is wrong.",
                "Quiet where the lag is known and no record waits: an empty topic needs no action.",
            ),
            Alert(
                "ExactlyOnceSecretMissing",
                """max by (namespace, stream) (exactlyonce_stream_secret_missing) == 1
unless on (namespace, stream) (exactlyonce_stream_phase{phase="Completed"} == 1)""",
                f"A secret of {_STREAM}, or a key of it, is missing or refused, or the operator may not read it.",
                "The stream's latest event BackingOff names the secret and the key: create or correct it, or give the operator "
                "the right to read it. No driver is started without it.",
            ),
            Alert(
                "ExactlyOnceSpecInvalid",
                """max by (namespace, stream) (exactlyonce_stream_condition{type="Stalled",status="True"}) == 1
unless on (namespace, stream) (exactlyonce_stream_phase{phase="Halted"} == 1)""",
                f"The latest spec of {_STREAM} is refused or was rolled back; the last good one is in force, if there was one.",
                "The condition Stalled of the stream says what is wrong and what to write instead.",
                "Stalled is True for a halted stream, which has its own alert, for a refused spec, and after a roll back.",
            ),
            Alert(
                "ExactlyOnceLandedNotShown",
                """max by (namespace, stream) (exactlyonce_stream_condition{type="LandedShown",status="False"}) == 1""",
                f"The lease table or consumer group of {_STREAM} does not show where it has landed.",
                "The condition LandedShown of the stream says what stands in the way, and whether somebody has to act. The "
                "stream itself continues; whoever starts an application there begins too early.",
            ),
            Alert(
                "ExactlyOnceDeadLetters",
                "sum by (namespace, stream) (increase(exactlyonce_stream_dead_letters_total[15m])) >= ${count}",
                f'{{{{ $value | printf "%.0f" }}}} records of {_STREAM} were malformed and landed as dead letters in the last '
                "15 minutes.",
                "The table `dead_letters` of the ledger holds each record and why it was refused: correct the producer, or the "
                "schema of the stream.",
            ),
            Alert(
                "ExactlyOnceStreamUnmeasured",
                """(
  max by (namespace, stream) (exactlyonce_stream_phase{phase!="Completed"})
    unless on (namespace, stream)
  time() - max by (namespace, stream) (exactlyonce_stream_measured_timestamp_seconds) <= ${seconds}
)
unless on (namespace, stream) (exactlyonce_stream_source_up == 0)
unless on (namespace, stream) (exactlyonce_stream_ledger_up == 0)
unless on (namespace, stream) (exactlyonce_stream_secret_missing == 1)
unless on (namespace, stream) (exactlyonce_stream_condition{type="Stalled",status="True"} == 1)""",
                f"The lag of {_STREAM} is not measured: no other alert of this stream that needs its lag can fire.",
                f"Run {_STATUS} and read the operator's log: a part of the stream could not be opened, or a store keeps "
                "connections open and does not answer.",
                "Each cause that has an alert of its own is left to that one.",
            ),
        ),
    ),
    Group(
        "exactlyonce-checkpoints",
        (
            Alert(
                "ExactlyOnceCheckpointGrows",
                """max by (namespace, stream) (last_over_time(exactlyonce_checkpoint_bytes[1h]))
  and on (namespace, stream) last_over_time(exactlyonce_checkpoint_objects[6h] offset 1d)
  and on (namespace, stream) (
    min by (namespace, stream) (min_over_time(exactlyonce_checkpoint_objects[1h])) > ${objects}
      > max by (namespace, stream) (max_over_time(exactlyonce_checkpoint_objects[1d] offset 6h))
    or
    min by (namespace, stream) (min_over_time(exactlyonce_checkpoint_bytes[1h])) > ${bytes}
      > max by (namespace, stream) (max_over_time(exactlyonce_checkpoint_bytes[1d] offset 6h))
    or
    max by (namespace, stream) (last_over_time(exactlyonce_checkpoint_objects[1h])) >= 1000000
  )""",
                f"The checkpoint of {_STREAM} takes {{{{ $value | humanize1024 }}}}B and does not stop growing.",
                "Find out what grows: old generations, files that Spark may not delete, or the state of the query. "
                "The page says which generations may be deleted by hand.",
                "Large, and for six hours larger than in the day before those: a checkpoint that is new, swings, or grew by "
                "one step is not told. Nobody counts further than 1,000,000 objects. It looks back over changes of the leader.",
            ),
        ),
        interval="10m",
    ),
    Group(
        "exactlyonce-operator",
        (
            Alert(
                "ExactlyOnceOperatorDown",
                "absent(exactlyonce_lease_held == 1)",
                "No operator holds the Lease: drivers that run continue, those that end are not replaced, and no lag is "
                "measured.",
                "Look at the operator's pods: `kubectl get pods -l app.kubernetes.io/part-of=exactlyonce -A`, and at "
                "the API server, without which no one can hold it.",
            ),
            Alert(
                "ExactlyOnceOperatorStuck",
                """max by (instance) (exactlyonce_queue_depth) > 0
  and on (instance) max by (instance) (exactlyonce_lease_held) == 1
  unless on (instance) sum by (instance) (rate(exactlyonce_pass_seconds_count[5m])) > 0""",
                "The operator {{ $labels.instance }} leads, {{ $value }} streams are due, and no pass has ended for "
                "5 minutes.",
                "Its log says what it waits for; deleting its pod is safe, the other replica continues.",
            ),
            Alert(
                "ExactlyOnceStoreErrors",
                "sum by (store) (rate(exactlyonce_store_errors_total[10m])) > ${perSecond}",
                '{{ $labels.store }} fails {{ $value | printf "%.1f" }} requests of the operator per second.',
                "The operator's log has the address and the answer.",
            ),
            Alert(
                "ExactlyOnceShardWithoutLeader",
                """(
  max by (lease) (max_over_time(exactlyonce_shard_leader[1d])) >= 0
    unless on (lease) max by (lease) (exactlyonce_shard_leader) == 1
)
and on () max(exactlyonce_lease_held) == 1""",
                "No operator holds the Lease {{ $labels.lease }}, while another shard has a leader: nobody acts for its "
                "streams.",
                "Look at the pods of the release with that Lease: they do not run, may not write the Lease, or are not "
                "scraped.",
                "A shard is remembered for a day after its last scrape. Without any leader, ExactlyOnceOperatorDown fires.",
            ),
        ),
    ),
)
"""Every alert, in the order of the files that are made of them."""
