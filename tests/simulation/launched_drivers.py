"""The launcher of the simulated world: how its drivers start, how they are, and what becomes of their tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Orders, Running
from exactlyonce.positions.ranges import Epoch, OffsetRange, Partition, Ranges
from exactlyonce_spark import tasks
from tests.simulation.driver import drive
from tests.simulation.launcher import Driver
from tests.simulation.resource import RequestedSpec
from tests.simulation.scheduler import Actor, Process

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


class LaunchedDrivers:
    """What a world answers as the launcher of drivers, and as the Spark that runs their tasks."""

    @property
    def _world(self) -> SimulatedWorld:
        return cast("SimulatedWorld", self)

    def task_tools(self, driver: Process) -> tasks.TaskTools:
        """Return what a task works with."""
        epoch = int(driver.name.split()[1].split(".")[0])
        return tasks.TaskTools(self._world.ledger(), self._world.target(epoch), self._world.source_check())

    def tasks_of(self, driver: Process, ranges: Ranges) -> list[tuple[Partition, OffsetRange]]:
        """Return what each task of a batch reads, by its index."""
        return list(ranges.non_empty().items())

    def task_is_lost(self, actor: Actor) -> bool:
        """Whether Spark has given up a task that may still run: its executor was lost."""
        return actor in self._world.lost_tasks

    def lose_a_task(self, driver: Process) -> None:
        """The executor of a driver's task is given up, and runs on."""
        running = [actor for actor in self._world.running_tasks.get(driver, []) if not actor.done]
        if running:
            self._world.lost_tasks.add(self._world.random.choice(running))

    def task_fails_late(self) -> bool:
        """Whether a task is to fail after its work was done, so that Spark runs it again."""
        return self._world.strikes("task fails late", 0.1)

    def latest(self) -> Epoch:
        """The launcher: the highest attempt that was ever started."""
        return max(self._world.drivers, default=Epoch(0))

    def state_of(self, attempt: Epoch) -> DriverState:
        """The launcher: how is the driver of an attempt?"""
        self._world.simulation.step(f"look at driver {attempt}")
        drivers = self._world.drivers.get(attempt)
        if not drivers:
            return NeverStarted()
        if all(driver.process.ended for driver in drivers):
            return Ended("the process is gone", drivers[0].words, "it was killed")
        return Gone("its node is lost") if any(driver.given_up for driver in drivers) else Running(f"driver {attempt}")

    def start(self, attempt: Epoch, requested: RequestedSpec, orders: Orders) -> None:
        """The launcher: start the driver of an attempt, unless there is one."""
        self._world.simulation.step(f"start driver {attempt}")
        if attempt in self._world.drivers:
            return
        if self._world.foreign_writes and self._world.strikes("foreign writes", 0.2):
            self._world.foreign_write()
        copies = 2 if self._world.strikes("start twice", 0.2) else 1
        starter = self._world.simulation.running
        self._world.drivers[attempt] = []
        for copy in range(copies):
            process = self._world.new_process(f"driver {attempt}.{copy}")
            driver = Driver(process, self._world.simulation.steps, starter)
            self._world.drivers[attempt].append(driver)
            self._world.simulation.spawn(
                process, process.name, partial(drive, self._world, driver, attempt, requested, orders)
            )

    def drain(self, attempt: Epoch) -> None:
        """The launcher: ask a driver to end after the current batch."""
        self._world.drained.add(attempt)

    def kill(self, attempt: Epoch) -> None:
        """The launcher: end a driver."""
        for driver in self._world.drivers.get(attempt, []):
            if not driver.process.ended:
                self._world.simulation.kill(driver.process)
