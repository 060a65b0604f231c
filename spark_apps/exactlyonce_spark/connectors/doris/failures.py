"""Nothing that Spark tells is of Doris."""

from __future__ import annotations

from exactlyonce_spark.connectors.recognised import Failures

FAILURES = Failures()
