"""What goes wrong in a world whose source is a Kinesis stream."""

from __future__ import annotations

from exactlyonce.positions.ranges import PARTITION_END, Partition
from tests.simulation.chaos import Chaos
from tests.simulation.kinesis_world import KinesisWorld
from tests.simulation.resource import STREAM_ID
from tests.simulation.source import TOPIC


class KinesisChaos(Chaos):
    """Strikes a world with a stream."""

    def __init__(self, world: KinesisWorld) -> None:
        super().__init__(world)
        self._kinesis = world
        self._is_calm = False

    def calm_down(self) -> None:
        """Nothing goes wrong any more. Producers continue in every shard: of an idle one nobody could tell what it lost."""
        stream = self._kinesis.stream
        stream.unlisted.clear()
        if stream.is_missing:
            self._create_again(2)
        super().calm_down()
        if not self._is_calm:
            self._is_calm = True
            for shard in stream.open_shards:
                stream.produce(shard, 1, together=False)

    def _produce(self) -> None:
        world = self._kinesis
        if self._produced >= world.records_to_produce or world.stream.is_missing:
            self._produced += world.stream.is_missing
            return
        count = world.random.randint(1, 5)
        world.stream.produce(
            world.random.choice(world.stream.open_shards), count, together=count > 1 and world.random.random() < 0.4
        )
        self._produced += count

    def _strike_source(self) -> None:
        world, stream = self._kinesis, self._kinesis.stream
        self._stop_or_start_source()
        self._change_limit()
        if stream.is_missing:
            if world.random.random() < 0.3:
                self._create_again(world.random.randint(1, 3))
                world.struck_by("re-create", "the stream is created again")
            return
        if world.hazard_strikes("reshard", 0.25) and (done := stream.reshard(world.random)):
            world.journal.strike("reshard")
            world.simulation.tell(done)
        if world.strikes("retention", 0.12):
            world.time.sleep(world.random.uniform(4, 30) * 3600)
            stream.pass_retention()
            world.struck_by("retention", f"hours pass: {len(stream.gone)} records have expired")
        self._leave_out_of_list()
        if world.hazard_strikes("re-create", 0.01):
            world.journal.strike("re-create", lasts=True)
            stream.delete()
            world.struck_by("re-create", "the stream is deleted")

    def _create_again(self, shards: int) -> None:
        self._kinesis.stream.create_again(shards)
        self._kinesis.journal.end("re-create")

    def _leave_out_of_list(self) -> None:
        """ListShards leaves out a shard that was read to its end for a while, and lists it again."""
        world, stream = self._kinesis, self._kinesis.stream
        if stream.unlisted and world.random.random() < 0.3:
            stream.unlisted.clear()
            world.simulation.tell("all shards are listed again")
        rows = world.database.tables.rows
        ended = [
            shard
            for shard in stream.shards
            if rows.get(("position", STREAM_ID, Partition(TOPIC, shard)), (0,))[0] == PARTITION_END
        ]
        if ended and world.strikes("unlisted", 0.3):
            stream.unlisted.add(world.random.choice(ended))
            world.time.sleep(301)  # so that planners ask for the list again
            world.simulation.tell(f"{', '.join(sorted(stream.unlisted))} are not listed")
