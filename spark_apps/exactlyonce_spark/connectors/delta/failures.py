"""What Spark tells of a table's files is known by the connector whose writer makes them. No pyspark here."""

from __future__ import annotations

from exactlyonce_spark.connectors.recognised import Failures

FAILURES = Failures()
