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

GROUPS = (
    Group(
        "exactlyonce-streams",
        (
            Alert(
                "ExactlyOnceLagHigh",
                """(
  time() - min by (namespace, stream) (exactlyonce_stream_oldest_not_landed_timestamp_seconds)
    > on (namespace, stream)
  max by (namespace, stream) (exactlyonce_stream_lag_objective_seconds)
)
unless on (namespace, stream) (exactlyonce_stream_phase{phase=~"Suspended|Completed"} == 1)""",
                f"{_STREAM} is {{{{ $value | humanizeDuration }}}} behind its source, more than its objective.",
                f"Run {_STATUS}: it says whether the driver runs, what its last verdict was and which store does not "
                "answer.",
            ),
            Alert(
                "ExactlyOnceNothingLands",
                """(
  time() - max by (namespace, stream) (exactlyonce_stream_last_landed_timestamp_seconds) > ${seconds}
    and on (namespace, stream)
  time() - min by (namespace, stream) (exactlyonce_stream_oldest_not_landed_timestamp_seconds) > ${seconds}
)
unless on (namespace, stream) (exactlyonce_stream_phase{phase=~"Suspended|Completed|Halted"} == 1)""",
                f"{_STREAM} has landed no batch for {{{{ $value | humanizeDuration }}}} while records wait.",
                "Look at the driver's pod and log: it does not start, its batch takes longer than that, or it is "
                "frozen.",
            ),
            Alert(
                "ExactlyOnceStreamHalted",
                'max by (namespace, stream) (exactlyonce_stream_phase{phase="Halted"}) == 1',
                f"{_STREAM} has halted: going on would lose records or land them twice.",
                f"Run {_STATUS}, read the verdict and its evidence, and do what it says. It does not go on by itself.",
            ),
            Alert(
                "ExactlyOnceRetentionRisk",
                "min by (namespace, stream) (exactlyonce_stream_retention_remaining_seconds) < ${seconds}",
                f"Kafka's retention reaches records of {_STREAM} that have not landed in "
                "{{ $value | humanizeDuration }}.",
                "Raise the topic's retention now (retention.ms, retention.bytes); then find out why the stream does "
                "not catch up.",
            ),
            Alert(
                "ExactlyOnceCrashLoop",
                "max by (namespace, stream) (exactlyonce_stream_endings_in_a_row) >= ${count}",
                f"The last {{{{ $value }}}} drivers of {_STREAM} ended without landing a batch.",
                f"{_STATUS} shows how the last one ended and its last words.",
            ),
            Alert(
                "ExactlyOncePoisonBatch",
                "max by (namespace, stream) (exactlyonce_stream_batch_failures) >= ${count}",
                f"One batch of {_STREAM} has failed {{{{ $value }}}} times; after recovery.maxFailuresPerBatch the "
                "stream halts.",
                "The driver's last words name the record or the constraint: correct the data, the table or the "
                "transform.",
            ),
            Alert(
                "ExactlyOnceRecordsLost",
                """max by (namespace, stream) (exactlyonce_stream_lost_records)
  - min by (namespace, stream) (min_over_time(exactlyonce_stream_lost_records[1h])) > 0""",
                f"{{{{ $value }}}} offsets of {_STREAM} take no effect: they were recorded as lost in the last hour.",
                "The table `failures` of the ledger has their ranges and the reason; nothing else was lost.",
            ),
            Alert(
                "ExactlyOnceSourceUnreachable",
                "min by (namespace, stream) (exactlyonce_stream_source_up) == 0",
                f"The Kafka of {_STREAM} does not answer the operator, or not for all of its partitions.",
                "The condition Measured of the stream says what Kafka answered; the lag that is shown is what was "
                "last known.",
            ),
            Alert(
                "ExactlyOnceLedgerUnreachable",
                "min by (namespace, stream) (exactlyonce_stream_ledger_up) == 0",
                f"The database of {_STREAM} does not answer the operator.",
                "The condition Measured of the stream says what the database answered. Without it nothing lands and "
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
                "Quiet where the lag is known and no record waits: an empty topic needs nobody.",
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
                f"Run {_STATUS} and read the operator's log: the stream could not be put together, or a store keeps "
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
                "No operator holds the Lease: drivers that run go on, those that end are not replaced, and no lag is "
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
                "Its log says what it waits for; deleting its pod is safe, the other replica goes on.",
            ),
            Alert(
                "ExactlyOnceStoreErrors",
                "sum by (store) (rate(exactlyonce_store_errors_total[10m])) > ${perSecond}",
                '{{ $labels.store }} fails the operator {{ $value | printf "%.1f" }} times per second.',
                "The operator's log names the address and what was answered.",
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
