"""The document that a replay reads, and the one that it leaves: what to land, and what became of it. Performs no I/O.

Who starts a replay writes the former and reads the latter, so both sides take their form from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from exactlyonce.bounded_json import parse_json
from exactlyonce.launch.asked_ranges import AskedRange, parse_asked, render_asked
from exactlyonce.launch.backfill import BackfillOrder
from exactlyonce.ledger.letters import LetterKey
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition

DEFAULT_MOST_RECORDS = 10_000
"""Of one transaction; the rows of so many records pass through the memory of the replay's own process."""

BURST_SECONDS = 10
_SHORT = 250  # characters


@dataclass(frozen=True)
class ReplayDocument:
    """What a replay is started with: the stream's resolved spec, with the transform that is to be used, and what is to land.

    That is `ranges` of the quarantine, or `letters`: dead letters. A replay that finds out by itself what it is to land has
    neither: it chooses the letters that fit `find`, an AskedLetters as a document, or takes up what may be landed of the ranges
    `take_up`; with `tells_refused` each other part of those is told. `by` names the StreamReplay whose attempt it is.
    With `backfill` the ranges of `take_up` land into another table, and are not taken up.
    `most_records` is how many one transaction lands; `records_per_second` bounds how fast they are read, on average.
    """

    stream_id: str
    spec: Mapping[str, Any]
    master: str
    ranges: tuple[RangeKey, ...]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    most_records: int = DEFAULT_MOST_RECORDS
    records_per_second: float | None = None
    letters: tuple[LetterKey, ...] = ()
    find: Mapping[str, Any] | None = None
    take_up: tuple[AskedRange, ...] = ()
    tells_refused: bool = True
    by: str = ""
    backfill: BackfillOrder | None = None

    @property
    def most_at_once(self) -> int:
        """How many records one transaction lands: with a limit, no more than it allows in BURST_SECONDS."""
        if self.records_per_second is None:
            return self.most_records
        return max(1, min(self.most_records, int(self.records_per_second * BURST_SECONDS)))

    def render(self) -> str:
        """Return the document as JSON."""
        document = {
            "streamId": self.stream_id,
            "spec": self.spec,
            "master": self.master,
            "sparkConf": self.spark_conf,
            "mostRecords": self.most_records,
            "recordsPerSecond": self.records_per_second,
            "letters": [list(key) for key in self.letters],
            "find": self.find,
            "takeUp": json.loads(render_asked(self.take_up)),
            "tellsRefused": self.tells_refused,
            "by": self.by,
            "backfill": None if self.backfill is None else asdict(self.backfill),
        }
        if not self._finds_by_itself:
            # A release that does not know the other fields cannot read a document without this one: it would land nothing of
            # what they ask for, and report that it is done.
            document["ranges"] = [
                [key.batch, key.partition.origin, key.partition.key, key.from_offset] for key in self.ranges
            ]
        return json.dumps(document, indent=2)

    @property
    def _finds_by_itself(self) -> bool:
        return self.find is not None or bool(self.take_up) or self.backfill is not None

    @classmethod
    def parse(cls, text: str) -> ReplayDocument:
        """Return what `render` wrote.

        Raises:
            KeyError, TypeError, ValueError: if the text is something else.
        """
        document = json.loads(text)
        finds = any(document.get(name) not in (None, []) for name in ("find", "takeUp", "backfill"))
        return cls(
            document["streamId"],
            document["spec"],
            document["master"],
            tuple(
                RangeKey(BatchNumber(batch), Partition(origin, key), start)
                for batch, origin, key, start in ([] if finds else document["ranges"])
            ),
            document["sparkConf"],
            document["mostRecords"],
            document["recordsPerSecond"],
            tuple((topic, origin_id, number, place) for topic, origin_id, number, place in document.get("letters", ())),
            document.get("find"),
            parse_asked(json.dumps(document.get("takeUp", []))),
            document.get("tellsRefused", True),
            document.get("by", ""),
            None if document.get("backfill") is None else BackfillOrder(**document["backfill"]),
        )


@dataclass(frozen=True)
class ReplayReport:
    """What a replay says as its last act, in records; `told` has a sentence for each part that it has not landed.

    `problem` is what ended it before it was done; None where nothing did. `ending` is then the code of an Ending of a driver.
    `left` is how many of the dead letters that it has found it has not landed. `uncounted` is how many parts failed or are lost
    of which nobody can tell how many records they have; a report without such parts does not name it, so that a release
    that does not know the field reads it.
    """

    landed: int = 0
    rows: int = 0
    lost: int = 0
    failed: int = 0
    told: tuple[str, ...] = ()
    problem: str | None = None
    ending: str | None = None
    left: int = 0
    uncounted: int = 0

    def render(self, most_bytes: int | None = None) -> str:
        """Return the report as JSON; of at most so many bytes, which takes sentences from the end of `told`.

        A Kubernetes termination message holds 4,096 bytes, and JSON writes a character in at most 12 of them.
        """
        text = self._text()
        if most_bytes is None or len(text) <= most_bytes:
            return text
        problem = None if self.problem is None else self.problem[:_SHORT]
        told = tuple(sentence[:_SHORT] for sentence in self.told)
        for count in range(min(len(told), most_bytes // 4), -1, -1):
            text = replace(self, told=told[:count], problem=problem)._text()
            if len(text) <= most_bytes:
                return text
        raise ValueError(f"a report does not fit into {most_bytes} bytes")

    def _text(self) -> str:
        document = asdict(self)
        if not self.uncounted:
            del document["uncounted"]
        return json.dumps(document)

    @classmethod
    def parse(cls, text: str) -> ReplayReport:
        """Return what `render` wrote.

        Raises:
            KeyError, TypeError, ValueError: if the text is something else.
        """
        found = parse_json(text)
        report = cls(**{**found, "told": tuple(found["told"])})
        numbers = (report.landed, report.rows, report.lost, report.failed, report.left, report.uncounted)
        words = (*report.told, *(it for it in (report.problem, report.ending) if it is not None))
        if not all(type(it) is int for it in numbers) or not all(isinstance(it, str) for it in words):
            raise TypeError("it is no report of a replay")
        return report
