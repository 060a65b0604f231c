"""What goes wrong, and when: drawn from the seed, between any two steps."""

from __future__ import annotations

from collections.abc import Callable

from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import Phase
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Partition
from tests.simulation import adoption, at_rest, foreign_writer, manifest
from tests.simulation.asked_resets import RESET
from tests.simulation.claims import standing
from tests.simulation.poison import LASTING
from tests.simulation.resource import STREAM_ID
from tests.simulation.scheduler import Process
from tests.simulation.server import MOST_COMMITS_LOST, Tables
from tests.simulation.source import OTHER_TOPIC, TOPIC
from tests.simulation.world import SimulatedWorld


class Chaos:
    """Strikes a world, which keeps what struck and what that took away."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._backup: Tables | None = None
        self._produced = 0
        self.reset: Callable[[SimulatedWorld], None] = lambda world: None
        world.foreign_write = lambda: foreign_writer.overwrite(world)

    def between_steps(self) -> None:
        """Let time pass: records come, and perhaps something goes wrong."""
        world = self._world
        dice = world.random
        if dice.random() < 0.08:
            self._produce()
        if world.to_strike:
            self._strike_at_commit()
        if not world.calm:
            world.strike_sink()
        if world.calm or dice.random() > 0.06:
            return
        self._strike_drivers()
        self._strike_operators()
        self._strike_database()
        self._strike_files()
        self._lose_ledger()
        adoption.drop_ledger(world)
        self._strike_source()
        self._change_resource()
        self.reset(world)
        if world.scenario.manifest and dice.random() < 0.1:
            cleaner = world.new_process("cleaner")
            world.cleaners.append(cleaner)
            world.simulation.spawn(cleaner, "cleaner", world.remove_orphans)
        if world.scenario.manifest:
            self._compact()

    def _compact(self) -> None:
        """Somebody merges files, and is killed or sleeps now and then."""
        world = self._world
        if world.random.random() < 0.3:
            process = world.new_process(f"compactor {len(world.compactors) + 1}")
            world.compactors.append(process)
            world.simulation.spawn(process, process.name, world.compact)
        for process in world.compactors:
            if process.ended or world.random.random() > 0.1:
                continue
            if world.random.random() < 0.3:
                world.simulation.kill(process)
            else:
                process.frozen = not process.frozen

    def _strike_at_commit(self) -> None:
        """A process is struck as its COMMIT takes effect: killed, or frozen and given up with its node."""
        world = self._world
        for process in world.to_strike:
            drivers = [driver for found in world.drivers.values() for driver in found if driver.process is process]
            if not drivers and world.hazard_strikes("failover", 0.5):
                self._fail_over()  # as a task commits: what it wrote may be on no standby yet
            if not drivers or process.ended:
                continue
            if world.random.random() < 0.5:
                world.journal.strike("kill driver", process)
                world.simulation.kill(process)
            elif not process.frozen:
                world.journal.strike("freeze driver", process, lasts=True)
                world.journal.strike("lose driver", process)
                process.frozen = True
                drivers[0].given_up = True
        world.to_strike.clear()

    def _strike_drivers(self) -> None:
        world = self._world
        for process in self._live_drivers():
            if world.strikes("kill driver", 0.15, process):
                world.simulation.kill(process)
            elif world.hazard_strikes("freeze driver", 0.15):
                process.frozen = not process.frozen
                if process.frozen:
                    world.journal.strike("freeze driver", process, lasts=True)
                else:
                    world.journal.end("freeze driver", process)
            elif world.strikes("lose task", 0.1, process):
                world.lose_a_task(process)
        for drivers in world.drivers.values():
            if world.strikes("lose driver", 0.05):
                for driver in drivers:
                    driver.given_up = True

    def calm_down(self) -> None:
        """Nothing goes wrong any more; what was frozen continues, what was left open is settled."""
        world = self._world
        world.calm = True
        world.suspended = False
        world.poison_left = LASTING if world.scenario.bisect else 0
        if not world.scenario.can_always_shrink:
            world.most_records = (
                None  # somebody gives it more memory; otherwise the batches have to become small enough
            )
        world.calm_sink()
        world.topic.up = True
        world.journal.end("brokers down")
        everything = frozenset(key.origin for key in world.topic.ends)
        if world.named != everything:
            world.journal.strike("topics changed")
        world.named = everything
        while self._produced < world.records_to_produce:
            self._produce()
        self._produce_where_a_query_may_wait()
        for transaction in list(world.database.pending):
            world.database.settle_pending(transaction, apply=world.random.random() < 0.5)
        for process in (*self._live_drivers(), *world.compactors, *world.operators):
            process.frozen = False
        if all(operator.ended for operator in world.operators):
            world.start_operator("operator last")

    def _produce_where_a_query_may_wait(self) -> None:
        """Write a record where a query without its checkpoint, or with a plan that another wrote, takes a log for read.

        Its driver waits, and the first record shows that the log is not the one that was read.
        """
        world = self._world
        written_by_another = "truncate" in world.struck and world.foreign_writes
        without_id = "re-create" in world.struck and not world.topic.has_ids
        for key, end in list(world.topic.ends.items()):
            if (without_id and end == 0) or (written_by_another and end < standing(world).get(key, 0)):
                world.topic.ends[key] = end + 1

    def _produce(self) -> None:
        world = self._world
        if self._produced >= world.records_to_produce:
            return
        key = world.random.choice(list(world.topic.ends))
        count = world.random.randint(1, 5)
        world.topic.ends[key] += count
        self._produced += count

    def _live_drivers(self) -> list[Process]:
        found = [driver.process for drivers in self._world.drivers.values() for driver in drivers]
        return [process for process in found if not process.ended]

    def _strike_operators(self) -> None:
        world = self._world
        for process in world.operators:
            if not process.ended and world.strikes("kill operator", 0.1, process):
                world.simulation.kill(process)
        if all(operator.ended for operator in world.operators):
            world.start_operator(f"operator {len(world.operators) + 1}")
        # Whoever loses ledger, checkpoint and status at once has lost all evidence; nothing could tell that from a first start.
        if "lose ledger" not in world.struck and world.strikes("lose status", 0.05):
            world.statuses.status = type(world.statuses.status)()
            world.statuses.version += 1
            world.simulation.tell("the status is lost")

    def _strike_database(self) -> None:
        world = self._world
        if world.strikes("database crash", 0.1):
            world.simulation.tell("the database crashes")
            world.database.crash()
        if world.hazard_strikes("failover", 0.05):
            self._fail_over()
        if world.hazard_strikes("edited by hand", 0.05):
            self._edit_by_hand()
        if self._backup is None:
            # A ledger that has not had its first file yet looks like one that was dropped and adopted (docs/adr/0028).
            may_go_back = not world.scenario.manifest or manifest.has_files(world)
            if not world.calm and may_go_back and "restore" in world.scenario.hazards and world.random.random() < 0.2:
                self._backup = world.database.tables.copy()
        elif "lose ledger" not in world.struck and world.hazard_strikes("restore", 0.05):
            self._note_restore(self._backup)
            world.database.restore(self._backup)
            world.struck_by("restore", "the database is restored from a backup")
            self._backup = None
        for transaction in list(world.database.pending):
            if world.random.random() < 0.3:
                world.database.settle_pending(transaction, apply=world.random.random() < 0.5)

    def _lose_ledger(self) -> None:
        """Somebody drops the ledger's schema and the checkpoint; the target table stays, and the status knows a batch."""
        world = self._world
        progress = world.statuses.status.progress
        if progress is None or progress.batch is None or not world.strikes("lose ledger", 0.02):
            return
        world.database.crash()
        world.database.lose_rows()
        world.store.files.clear()
        world.struck_by("lose ledger", "the ledger and the checkpoint are lost")

    def _fail_over(self) -> None:
        """A standby is promoted that has not received the latest transactions; none brings a lost ledger back."""
        world = self._world
        if "lose ledger" in world.struck:
            return
        lost = world.random.randint(0, MOST_COMMITS_LOST)
        world.journal.strike("failover")
        world.database.fail_over(lost)
        self._note_restore(world.database.tables)
        world.struck_by("failover", f"a standby is promoted that lacks the latest {lost} transactions")

    def _note_restore(self, tables: Tables) -> None:
        """Note that the database goes back to these tables."""
        self._world.journal.strike("restore")
        if not _has_landed(tables):
            self._world.journal.strike("restore to before the first batch")

    def _edit_by_hand(self) -> None:
        """Somebody changes or deletes a position: one at the end of the landed batch, or of a partition that was left out."""
        world = self._world
        rows = world.database.tables.rows
        # Who halts tells of what was taken when it continues.
        at_most_once = Delivery.AT_MOST_ONCE in world.deliveries
        stream = rows.get(("stream", STREAM_ID))
        landed = None if stream is None else rows.get(("batch", STREAM_ID, stream.landed_batch))
        if landed is None or world.edited or "failover" in world.scenario.hazards or at_most_once:
            return
        if world.foreign_writes:
            return  # whoever edits the ledger and Spark's plan to agree is not found out before the next look
        at_end = [
            ("position", STREAM_ID, key)
            for key, end in landed.ranges.ends.items()
            if end > 0 and rows.get(("position", STREAM_ID, key), (0,))[0] == end
        ]
        left_out = [row for row, value in rows.items() if row[0] == "retired" and value[0] > 0]
        if not at_end and not left_out:
            return
        row = world.random.choice([*at_end, *left_out])
        key, (offset, *rest) = row[2], rows[row]
        world.edited[key] = offset
        world.database.tables = world.database.tables.copy()  # a state that is kept stays as it was
        rows = world.database.tables.rows
        if world.random.random() < 0.5:
            rows[row] = (world.random.randint(0, offset - 1), *rest)
        else:
            del rows[row]
        world.database.version += 1
        world.journal.strike("edited by hand")
        world.simulation.tell(
            f"somebody edits the ledger: {key} {'was left out' if row in left_out else 'stood'} at {offset}"
        )

    def _strike_files(self) -> None:
        world = self._world
        if world.strikes("lose checkpoint", 0.05):
            world.store.files.clear()
            world.struck_by("lose checkpoint", "the checkpoint is lost")
        if world.store.files and world.strikes("tear checkpoint", 0.05) and not world.stateful:
            path = world.random.choice(sorted(path for path in world.store.files if "stream.json" not in path) or [""])
            if path:
                world.simulation.tell(f"{path} is torn")
                world.store.files[path] = world.store.files[path][: world.random.randint(0, 6)]
        if world.foreign_writes and world.strikes("foreign writes", 0.1):
            foreign_writer.overwrite(world)

    def goes_on_after_rest(self) -> bool:
        """Whether a person who waited until no driver runs, while nothing else happens, has it run again, perhaps changed."""
        world = self._world
        may_act = bool({"delivery changed", RESET} & world.scenario.hazards) or at_rest.may_rest_long(world)
        if world.calm or not self._rests() or not may_act:
            return False
        self.reset(world)
        at_rest.rests_long(world)
        if world.strikes("delivery changed", 0.7):
            world.change_delivery()
        world.suspended = False
        world.simulation.tell("the stream is to run")
        return True

    def _rests(self) -> bool:
        """Whether the delivery may be changed now."""
        return self._world.suspended and self._world.statuses.status.phase is Phase.SUSPENDED

    def _waits_for_rest(self) -> bool:
        """Whether somebody has suspended the stream to change its delivery, and it does not rest yet."""
        return self._world.suspended and not self._rests() and "delivery changed" in self._world.scenario.hazards

    def _change_resource(self) -> None:
        """A person suspends or resumes the stream, or changes how it commits, at rest or not; or has it start over."""
        world = self._world
        at_rest.may_ask_at_any_time(world)
        if not self._waits_for_rest() and world.hazard_strikes("suspend", 0.1):
            world.suspended = not world.suspended
            if world.suspended:
                world.journal.strike("suspend")
            world.simulation.tell("the stream is to be suspended" if world.suspended else "the stream is to run")
        if self._rests() and world.strikes("delivery changed", 0.5):
            world.change_delivery()
        may_change = world.delivery is Delivery.EXACTLY_ONCE and not world.stateful
        if may_change and world.strikes("commit changed", 0.05):
            world.commit = Commit.BATCH if world.commit is Commit.PARTITION else Commit.PARTITION
            world.simulation.tell(f"the resource asks for commit: {world.commit}")
        if not world.poison and world.strikes("poison", 0.5 if world.scenario.quarantine else 0.2):
            self._poison()
        if world.most_records is None and world.strikes("too large", 0.2):
            world.most_records = world.random.randint(1, 4)
            world.simulation.tell(f"a batch of more than {world.most_records} records needs more memory than there is")

    def _poison(self) -> None:
        """A record, or with a bisection some of them, will fail each batch that reads it."""
        world = self._world
        places = set()
        for _ in range(world.random.randint(1, 4) if world.scenario.bisect else 1):
            key = world.random.choice(list(world.topic.ends))
            places.add((key, world.topic.ends[key] + world.random.randint(0, 8 if world.scenario.bisect else 3)))
        world.poison = frozenset(places)
        world.poison_records = frozenset(world.topic.record(*place) for place in places)
        world.poison_left = world.random.randint(1, 5) * (10 if world.scenario.quarantine else 1)
        if world.scenario.bisect:
            world.poison_left = LASTING
            world.fails_in_company = world.random.random() < 0.1
        told = ", ".join(f"{key} at {offset}" for key, offset in sorted(places))
        world.simulation.tell(f"{world.poison_left} batches fail that read {told}")

    def _truncate(self, key: Partition) -> None:
        """A replica that lacks the last records is elected; what is produced from then on stands at their offsets."""
        world = self._world
        at = max(world.topic.earliest(key), world.topic.ends[key] - world.random.randint(1, 8))
        if at == world.topic.ends[key]:
            return
        removed = world.topic.ends[key] - at
        world.topic.truncate(key, at)
        self._grow_again(key, removed)
        world.struck_by("truncate", f"{key} is truncated at {at}")

    def _grow_again(self, key: Partition, removed: int) -> None:
        """Producers continue, often before anybody looks: by its end alone the log then seems to have lost nothing."""
        if self._world.random.random() < 0.8:
            self._world.topic.ends[key] += removed + self._world.random.randint(0, 3)

    def _strike_source(self) -> None:
        world = self._world
        self._stop_or_start_source()
        if world.strikes("new partition", 0.05) and len(world.topic.ends) < 4:
            world.topic.ends[Partition(TOPIC, len(world.topic.ends))] = 0
        self._change_limit()
        if world.strikes("topics changed", 0.05):
            choices = [frozenset({TOPIC}), frozenset({OTHER_TOPIC}), frozenset({TOPIC, OTHER_TOPIC})]
            world.named = world.random.choice([names for names in choices if names != world.named])
            world.struck_by("topics changed", f"the resource names {', '.join(sorted(world.named))}")
        self._strike_logs()
        if world.strikes("retention", 0.1):
            key = world.random.choice(list(world.topic.ends))
            floor = world.topic.earliest(key)
            world.topic.starts[key] = min(world.topic.ends[key], floor + world.random.randint(0, 6))
            world.struck_by("retention", f"{key} begins at {world.topic.starts[key]}: retention")

    def _stop_or_start_source(self) -> None:
        world = self._world
        if world.hazard_strikes("brokers down", 0.1):
            world.topic.up = not world.topic.up
            if world.topic.up:
                world.journal.end("brokers down")
            else:
                world.journal.strike("brokers down", lasts=True)

    def _change_limit(self) -> None:
        world = self._world
        if world.strikes("limit changed", 0.1):
            world.limit = world.random.randint(1, world.batch_records)
            world.struck_by("limit changed", f"a batch may have {world.limit} records of a partition")

    def _strike_logs(self) -> None:
        """Another replica leads, with all records or without the last ones; or the topic is recreated."""
        world = self._world
        if world.strikes("leader moves", 0.1):
            world.topic.move_leader(world.random.choice(list(world.topic.ends)))
        if world.strikes("truncate", 0.05):
            self._truncate(world.random.choice(list(world.topic.ends)))
        if world.strikes("re-create", 0.03):
            before = {key: end for key, end in world.topic.ends.items() if key.origin == TOPIC}
            world.topic.recreate(TOPIC)
            for key, end in before.items():
                self._grow_again(key, end)
            world.struck_by("re-create", f"{TOPIC} is deleted and recreated")


def _has_landed(tables: Tables) -> bool:
    """Whether a batch has landed in these tables, if only the seed."""
    return any(isinstance(row, StreamRow) and row.landed_batch is not None for row in tables.rows.values())
