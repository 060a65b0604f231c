"""Rules of the whole spec for streams that write files. Performs no I/O."""

from __future__ import annotations

from exactlyonce.connectors.manifest_rules import manifest_rules
from exactlyonce.connectors.s3_sink_rules import s3_sink_rules

STREAM_RULES = (*manifest_rules("files"), *s3_sink_rules("files", "path"))
