"""What goes wrong, and when: drawn from the seed, between any two steps."""

from __future__ import annotations

from exactlyonce.offsets import TopicPartition
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

    def between_steps(self) -> None:
        """Let time pass: records come, and perhaps something goes wrong."""
        world = self._world
        dice = world.random
        if dice.random() < 0.08:
            self._produce()
        if world.calm or dice.random() > 0.06:
            return
        for process in self._live_drivers():
            if world.strikes("kill driver", 0.15):
                world.simulation.kill(process)
            elif world.strikes("freeze driver", 0.15):
                process.frozen = not process.frozen
        for drivers in world.drivers.values():
            if world.strikes("lose driver", 0.05):
                for driver in drivers:
                    driver.given_up = True
        self._strike_operators()
        self._strike_database()
        self._strike_files()
        self._lose_ledger()
        self._strike_source()

    def calm_down(self) -> None:
        """Nothing goes wrong any more; what was frozen goes on, what was left open is settled."""
        world = self._world
        world.calm = True
        world.topic.up = True
        world.named = frozenset(key.topic for key in world.topic.ends)
        while self._produced < world.records_to_produce:
            self._produce()
        for transaction in list(world.database.pending):
            world.database.settle_pending(transaction, apply=world.random.random() < 0.5)
        for process in self._live_drivers():
            process.frozen = False
        if all(operator.ended for operator in world.operators):
            world.start_operator("operator last")

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
            if not process.ended and world.strikes("kill operator", 0.1):
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
        if "lose ledger" not in world.struck and world.strikes("failover", 0.05):
            lost = world.random.randint(0, MOST_COMMITS_LOST)
            world.database.fail_over(lost)
            world.struck_by("failover", f"a standby is promoted that lacks the latest {lost} transactions")
        if self._backup is None and world.strikes("restore", 0.2):
            self._backup = world.database.tables.copy()
        elif self._backup is not None and "lose ledger" not in world.struck and world.strikes("restore", 0.05):
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
            self._overwrite_latest_plan()

    def _overwrite_latest_plan(self) -> None:
        """Another process writes its own idea of the latest batch over Spark's."""
        world = self._world
        plans = sorted(path for path in world.store.files if "/offsets/" in path)
        if not plans:
            return
        path = world.random.choice(plans)
        lines = world.store.files[path].decode().split("\n")
        if len(lines) < 3 or lines[2] == "-":
            return
        from exactlyonce.offsets import Positions

        other = Positions({key: max(0, end - 1) for key, end in Positions.from_json(lines[2]).items()})
        world.simulation.tell(f"{path} is overwritten")
        world.store.files[path] = "\n".join([*lines[:2], other.to_json()]).encode()

    def _truncate(self, key: TopicPartition) -> None:
        """A replica that lacks the last records is elected; what is produced from then on stands at their offsets."""
        world = self._world
        at = max(world.topic.earliest(key), world.topic.ends[key] - world.random.randint(1, 8))
        if at == world.topic.ends[key]:
            return
        removed = world.topic.ends[key] - at
        world.topic.truncate(key, at)
        self._grow_again(key, removed)
        world.struck_by("truncate", f"{key} is truncated at {at}")

    def _grow_again(self, key: TopicPartition, removed: int) -> None:
        """Producers go on, often before anybody looks: by its end alone the log then seems to have lost nothing."""
        if self._world.random.random() < 0.8:
            self._world.topic.ends[key] += removed + self._world.random.randint(0, 3)

    def _strike_source(self) -> None:
        world = self._world
        if world.strikes("brokers down", 0.1):
            world.topic.up = not world.topic.up
        if world.strikes("new partition", 0.05) and len(world.topic.ends) < 4:
            world.topic.ends[TopicPartition(TOPIC, len(world.topic.ends))] = 0
        if world.strikes("limit changed", 0.1):
            world.limit = world.random.randint(1, world.batch_records)
            world.struck_by("limit changed", f"a batch may have {world.limit} records of a partition")
        if world.strikes("topics changed", 0.05):
            choices = [frozenset({TOPIC}), frozenset({OTHER_TOPIC}), frozenset({TOPIC, OTHER_TOPIC})]
            world.named = world.random.choice([names for names in choices if names != world.named])
            world.struck_by("topics changed", f"the resource names {', '.join(sorted(world.named))}")
        if world.strikes("leader moves", 0.1):
            world.topic.move_leader(world.random.choice(list(world.topic.ends)))
        if world.strikes("truncate", 0.05):
            self._truncate(world.random.choice(list(world.topic.ends)))
        if world.strikes("re-create", 0.03):
            before = {key: end for key, end in world.topic.ends.items() if key.topic == TOPIC}
            world.topic.make_anew(TOPIC)
            for key, end in before.items():
                self._grow_again(key, end)
            world.struck_by("re-create", f"{TOPIC} is deleted and made again")
        if world.strikes("retention", 0.1):
            key = world.random.choice(list(world.topic.ends))
            floor = world.topic.earliest(key)
            world.topic.starts[key] = min(world.topic.ends[key], floor + world.random.randint(0, 6))
            world.struck_by("retention", f"{key} begins at {world.topic.starts[key]}: retention")
