"""Rules of the whole spec for streams that write files. Performs no I/O."""

from __future__ import annotations

from exactlyonce.schema.constraints import Rule

STREAM_RULES = (
    Rule(
        "!has(self.sink.files) || self.delivery == 'ExactlyOnce'",
        lambda it: it.sink.files is None or it.delivery == "ExactlyOnce",
        "sink.files needs delivery: ExactlyOnce, which costs it nothing",
    ),
    Rule(
        "!has(self.sink.files) || self.outputMode == 'Append'",
        lambda it: it.sink.files is None or it.output_mode == "Append",
        "sink.files needs outputMode: Append, since a file is never changed",
    ),
    Rule(
        "!has(self.sink.files) || self.source.format.onTombstone != 'Delete'",
        lambda it: it.sink.files is None or it.source.format.on_tombstone != "Delete",
        "source.format.onTombstone: Delete needs a sink whose rows can be deleted, not sink.files",
    ),
    Rule(
        "!has(self.sink.files) || self.source.format.onMalformed != 'DeadLetter'",
        lambda it: it.sink.files is None or it.source.format.on_malformed != "DeadLetter",
        "source.format.onMalformed: DeadLetter needs a sink that keeps dead letters, not sink.files",
    ),
)
