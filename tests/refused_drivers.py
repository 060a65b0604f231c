"""What a resource may not say of its drivers, their pods and settings: each case with its sentence."""

from __future__ import annotations

from tests.resource_documents import Refused

MEMORY = "write a quantity in Mi or Gi, as 512Mi or 2Gi"
DURATION = "write it like 500ms, 10s, 5m or 1h30m"
LABEL_VALUE = "write a label's value: letters, digits, hyphens, underscores and dots"
OWN_NAMES = "names that begin with exactlyonce.dev/ are the operator's own; use another prefix"

REFUSED_DRIVERS = (
    Refused(
        "two triggers",
        {"spec.trigger": {"interval": "1s", "availableNow": True}},
        "spec.trigger",
        "give interval or availableNow, not both",
    ),
    *(
        Refused(f"a drain timeout of {text!r}", {"spec.drainTimeout": text}, "spec.drainTimeout", DURATION)
        for text in ("5", "5 m", "1.5h", "-5m", "5m1h", "PT5M", "5M", "\u0665m", "12345h")
    ),
    Refused(
        "another answer to a bad update",
        {"spec.recovery": {"onBadUpdate": "Rollback"}},
        "spec.recovery.onBadUpdate",
        "is not one of",
        "Unsupported value",
    ),
    Refused("a first wait that is not a duration", {"spec.recovery.backoff": {"initial": "1x"}}, "backoff.initial", DURATION),
    Refused("no drain timeout", {"spec.drainTimeout": "0s"}, "spec.drainTimeout", "give a time from 1s to 24h"),
    Refused(
        "no time for a transaction",
        {"spec.sink.postgres.transactionTimeout": "0s"},
        "spec.sink.postgres.transactionTimeout",
        "give a time from 1s to 24h",
    ),
    Refused("an empty duration", {"spec.drainTimeout": ""}, "spec.drainTimeout", DURATION),
    Refused("an interval of days", {"spec.trigger.interval": "25h"}, "interval", "give a time from 0s to 24h"),
    Refused("a short start timeout", {"spec.driver.startTimeout": "9s"}, "startTimeout", "give a time from 10s to 24h"),
    Refused(
        "a short progress timeout",
        {"spec.driver.progressTimeout": "59s"},
        "progressTimeout",
        "give a time from 1m to 24h",
    ),
    Refused("a number for a duration", {"spec.drainTimeout": 5}, "drainTimeout", "5 is not a duration", "of type string"),
    Refused(
        "a first wait above the longest",
        {"spec.recovery.backoff": {"initial": "2m", "max": "60s"}},
        "spec.recovery.backoff",
        "initial may not exceed max",
    ),
    Refused("a text for a number", {"spec.driver.cores": "2"}, "spec.driver.cores", "valid integer", "type integer"),
    Refused("a truth for a number", {"spec.driver.cores": True}, "spec.driver.cores", "valid integer", "must be of type"),
    Refused("a text for a truth", {"spec.suspend": "true"}, "spec.suspend", "valid boolean", "type boolean"),
    Refused("half a core", {"spec.driver.cores": 0.5}, "spec.driver.cores", "valid integer", "type integer"),
    Refused("no cores", {"spec.executor.cores": 0}, "spec.executor.cores", "greater than or equal to 1"),
    Refused("memory as Java has it", {"spec.driver.memory": "2g"}, "spec.driver.memory", MEMORY),
    Refused("no memory", {"spec.executor.memory": "0Mi"}, "spec.executor.memory", MEMORY),
    Refused("no CPU", {"spec.executor.cpuRequest": "0"}, "cpuRequest", "write it as 2, 0.5 or 500m"),
    Refused(
        "fewer executors than there are",
        {"spec.executor": {"instances": 3, "maxInstances": 2}},
        "spec.executor",
        "maxInstances may not be less than instances",
    ),
    Refused(
        "an operator's label",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"exactlyonce.dev/stream": "x"}}}},
        "spec.driver.podTemplate.metadata.labels",
        OWN_NAMES,
    ),
    Refused(
        "an operator's annotation",
        {"spec.executor.podTemplate": {"metadata": {"annotations": {"exactlyonce.dev/x": "x"}}}},
        "spec.executor.podTemplate.metadata.annotations",
        OWN_NAMES,
    ),
    Refused(
        "a label with a space",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"a": "b c"}}}},
        "spec.driver.podTemplate.metadata.labels",
        LABEL_VALUE,
    ),
    Refused(
        "a number for a label",
        {"spec.driver.podTemplate": {"metadata": {"labels": {"a": 1}}}},
        "spec.driver.podTemplate.metadata.labels",
        "valid string",
        "must be of type string",
    ),
    Refused(
        "a selector beside a template's spec",
        {"spec.driver.podTemplate": {"nodeSelector": {}}},
        "nodeSelector",
        "there is no such field",
        "unknown field",
    ),
    Refused(
        "a number of shuffles that is not a number",
        {"spec.sparkConf": {"spark.sql.shuffle.partitions": "08"}},
        "spec.sparkConf",
        "spark.sql.shuffle.partitions is a whole number from 1 to 999999",
    ),
    Refused("a number for a setting", {"spec.sparkConf": {"spark.x": 8}}, "sparkConf", "valid string", "of type string"),
    Refused(
        "fewer batches than a decision may need",
        {"spec.ledgerRetention": {"batches": {"count": 199}}},
        "spec.ledgerRetention.batches.count",
        "greater than or equal to 200",
    ),
    Refused(
        "fewer batches than Spark keeps by itself",
        {"spec.checkpointRetention": {"batches": 99}},
        "spec.checkpointRetention.batches",
        "greater than or equal to 100",
    ),
    Refused(
        "no superseded generation",
        {"spec.checkpointRetention": {"generations": {"count": 0}}},
        "spec.checkpointRetention.generations.count",
        "greater than or equal to 1",
    ),
    *(
        Refused(
            f"{rows} that are kept for no time",
            {"spec.ledgerRetention": {rows: {"age": "59m"}}},
            f"spec.ledgerRetention.{rows}.age",
            "give a time from 1h to 9999h",
        )
        for rows in ("batches", "closedFailures", "lostFailures", "deadLetters")
    ),
    Refused("an objective of no lag", {"spec.objectives.lagSeconds": 0}, "lagSeconds", "greater than or equal to 1"),
    Refused("no such policy", {"spec.deletionPolicy": "Keep"}, "deletionPolicy", "is not one of", "Unsupported value"),
    Refused("a history of wars", {"spec.history": 101}, "spec.history", "less than or equal to 100"),
    Refused("a nonce below nothing", {"spec.restartNonce": -1}, "restartNonce", "greater than or equal to 0"),
)  # fmt: skip
