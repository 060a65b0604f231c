"""What errors that Spark tells say of a memory: nothing that needs to be known."""

from __future__ import annotations

from exactlyonce_spark.connectors.recognised import Failures

FAILURES = Failures()
