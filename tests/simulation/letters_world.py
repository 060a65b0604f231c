"""A world in which some records are malformed until somebody mends the schema, and dead letters are replayed beside the stream.

The bytes that a letter keeps are the record itself, so that a replay lands it although the source may not hold it any more.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from exactlyonce.api.spec import Delivery
from exactlyonce.ledger.given_ranges import take_up
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterRow, LetterStatus
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import OffsetRange, Ranges
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_letters import LetterReplay, LettersRead
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed
from tests.simulation.asked_resets import RESET
from tests.simulation.database import MemoryLedger
from tests.simulation.letters import letters_in
from tests.simulation.replay_world import MemoryRecords, ReplayWorld, scenario_of_replays
from tests.simulation.resets import with_resets
from tests.simulation.resource import STREAM_ID
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process

WITHOUT_ROW = (LetterStatus.KEPT, LetterStatus.REPLAYING)
MOST_REPLAYS = 12


def scenario_of_letters(seed: int) -> Scenario:
    """Return what a seed draws: a person who resets the positions, or a quarantine and replays of ranges as well.

    In half of the latter only records that fail are in quarantine, some of which are malformed, too.
    """
    if seed % 2:
        drawn = scenario_of_replays(seed // 2)
        return drawn.with_bisection() if seed % 4 == 3 else drawn
    drawn = with_resets(Scenario.draw(random.Random(seed)).delivered(Delivery.EXACTLY_ONCE))
    beside = frozenset({"retention", "strike at commit", "freeze driver"}) if seed % 4 else frozenset[str]()
    return replace(drawn, operators=1, hazards=frozenset({RESET, "suspend", "kill driver"}) | beside)


@dataclass(frozen=True)
class MemoryLetterReader:
    """A `LetterReader`; a letter may make the transform fail now and then."""

    world: LettersWorld
    process: Process

    def read(self, letters: Sequence[RecordedLetter]) -> LettersRead:
        """Parse the letters."""
        self.world.simulation.step(f"parse {len(letters)} dead letters")
        if not self.world.calm and self.world.random.random() < 0.1:
            raise RecordsFailed("the transform fails")
        records = {letter.row.key: record_of(letter) for letter in letters}
        wrong = {key for key, record in records.items() if not self.world.is_well_formed(self.process, record)}
        return LettersRead(
            [record for key, record in records.items() if key not in wrong],
            dict.fromkeys(wrong, "malformed as before"),
        )


def _is_of(letter: LetterRow, row: FailureRow) -> bool:
    """Whether a letter is of a record of a failed range, and both of one life of the stream."""
    same = (letter.partition, letter.origin_id, letter.life) == (row.partition, row.origin_id, row.life)
    return same and row.from_offset <= letter.position < row.until_offset


def record_of(letter: RecordedLetter) -> Hashable:
    """Return the record whose bytes a letter has kept."""
    assert letter.value is not None, "the model's records have values"
    record: Hashable = ast.literal_eval(letter.value.decode())
    return record


class LettersWorld(ReplayWorld):
    """A world of dead letters. Whoever begins to read once the schema is mended finds every record well-formed."""

    keeps_letters = True

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario or scenario_of_letters(seed))
        self.mended = False
        self._mended_for: dict[Process, bool] = {}
        self.given: list[ReplayOutcome] = []

    def is_well_formed(self, process: Process, record: Hashable) -> bool:
        """Whether a process, by the schema that it began with, finds a record well-formed."""
        assert isinstance(record, tuple)
        _, partition, offset = record
        return self._mended_for.setdefault(process, self.mended) or bool((5 * partition + 3 * offset + self.seed) % 4)

    def note_planned(self, process: Process, ranges: Ranges) -> None:
        """A driver has its schema from its first batch on."""
        self._mended_for.setdefault(process, self.mended)
        super().note_planned(process, ranges)

    def letters(self) -> tuple[RecordedLetter, ...]:
        """Return the dead letters."""
        return letters_in(self.database.tables.rows, STREAM_ID)

    def records_kept(self) -> set[Hashable]:
        """Return the records that are dead letters and have no row."""
        return {record_of(letter) for letter in self.letters() if letter.status in WITHOUT_ROW}

    def begins_again(self) -> None:
        """A person has had the stream start over: a record of its new life may replace a letter of the one before."""
        super().begins_again()
        self.kept_before = frozenset(self.records_kept())

    def wrong_since_commit(self) -> str | None:
        """A record is a dead letter and in quarantine, from both of which it would be replayed."""
        held = [row for row in self.in_quarantine() if row.life]
        kept = [letter.row for letter in self.letters() if letter.status in WITHOUT_ROW] if held else []
        both = [
            letter.identifier for letter in kept
            if any(_is_of(letter, row) for row in held)
        ]  # fmt: skip
        return f"a dead letter and in quarantine: {both}" if both else super().wrong_since_commit()

    def strike_sink(self) -> None:
        """Somebody mends the schema, and starts a replay."""
        super().strike_sink()
        # Who mends the schema may have the stream read again from before what was malformed: else no letter is superseded.
        if self.random.random() < (0.2 if self.asked.times else 0.003):
            self.mended = True
        waiting = any(letter.status in WITHOUT_ROW for letter in self.letters())
        if len(self.replays) < MOST_REPLAYS and self.random.random() < 0.05 and waiting:
            self.start_replay_of_letters()
        if len(self.replays) < MOST_REPLAYS and self.random.random() < 0.2 and self.asked.applied:
            process = self.new_process(f"replay {len(self.replays) + 1}")
            self.replays.append(process)
            self.compactors.append(process)
            self.simulation.spawn(process, process.name, lambda: self._take_up(process))

    def start_replay_of_letters(self) -> None:
        """Start a replay of all dead letters, also of those that have been replayed."""
        process = self.new_process(f"replay {len(self.replays) + 1}")
        self.replays.append(process)
        self.compactors.append(process)
        self.simulation.spawn(process, process.name, lambda: self._replay_letters(process))

    def _take_up(self, process: Process) -> None:
        """Give some range of a partition, of which the stream may have landed, skipped or kept any part."""
        rows = self.database.tables.rows.values()
        lost = [row for row in rows if isinstance(row, FailureRow) and row.status is FailureStatus.LOST and row.life]
        partition = self.random.choice([row.partition for row in lost] or sorted(self.topic.ends))
        begin = self.random.randint(0, self.topic.ends[partition])
        span = OffsetRange(begin, self.random.randint(begin, self.topic.ends[partition]))
        self.asked.taken_up |= self.records_in(partition, span)
        taken = take_up(self.ledger(), STREAM_ID, Ranges({partition: span}), None)
        self.simulation.tell(f"took up {[*map(RangeKey.of, taken.rows)]} of {partition} {span}")
        pace = ReplayPace(self.random.randint(1, 5))
        replay = Replay(
            self.ledger(), ReplayClaim(STREAM_ID, process.name), self.target(0), self.source_check(),
            MemoryRecords(self, process), pace,
        )  # fmt: skip
        self.given.append(replay.run([RangeKey.of(row) for row in taken.rows]))

    def _replay_letters(self, process: Process) -> None:
        wanted = [letter.row.key for letter in self.letters()]
        self.random.shuffle(wanted)
        pace = ReplayPace(self.random.randint(1, 5))
        reader = MemoryLetterReader(self, process)
        replay = LetterReplay(
            MemoryLedger(self.database), ReplayClaim(STREAM_ID, process.name), self.target(0), reader, pace
        )
        self.outcomes.append(replay.run(wanted))
