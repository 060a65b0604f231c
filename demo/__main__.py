"""`make demo`: orders from a source to a sink through the local operator, while its drivers are killed.

Prints each attempt with its verdict as it happens, and at the end what readers of the sink count against what was produced.
Exit status 0 if every order took effect exactly once, 1 if one is lost or doubled or the demo did not get to its end.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from demo.acts import Scene, acts_on
from demo.orders import Orders
from demo.screen import Screen
from demo.setup import Setup
from demo.sinks import SINKS, Count
from demo.sources import PARTITIONS, SOURCES, KafkaTopic, KinesisStream, Source
from testbed.postgres import Postgres

LEAST_ORDERS = 2_000
HELP = f"""
sources and sinks
  kafka     a broker of its own, a topic with {PARTITIONS} partitions
  kinesis   a data stream with {PARTITIONS} shards, of which one is split and two are merged while it is read. The service is a
            stand-in on this machine, moto's server corrected to behave as Kinesis documents it; it asks for no
            account and shows nothing about Amazon's limits or speed
  postgres  a table without a key, so that an order that took effect twice is two rows
  files     a folder of Parquet files, counted by pyarrow from `exactlyonce files` and by spark.read

what you will see
  seven acts: drivers killed at named points inside a batch and at random moments, one frozen and woken after its successor
  took over, and the whole checkpoint deleted; after each, the operator's verdict on where the next driver starts, with the
  reason. Then each reader's count: distinct ids, lost, doubled, and the sum of all amounts.

exit status
  0  every order took effect exactly once
  1  an order is lost or doubled, or the demo did not get to its end

examples
  make demo                                             Kafka to Postgres
  make demo SOURCE=kinesis SINK=files                   Kinesis' stand-in to Parquet files
  .venv/bin/python -m demo --sink files --keep /tmp/d   look at the files, ledger and logs afterwards
"""
_PATIENCE_SECONDS = 180.0
_LOOK_SECONDS = 0.2
_STYLES = {"Halted": "bold red", "BackingOff": "yellow"}


class Stuck(AssertionError):
    """What the demo waited for did not come."""


class Play:
    """The acts over one running stream."""

    def __init__(self, setup: Setup, orders: Orders, screen: Screen) -> None:
        self._setup = setup
        self._orders = orders
        self._screen = screen
        self._kills = 0

    def run(self) -> bool:
        """Run every act, wait for the last order, and return whether each took effect exactly once."""
        self._setup.start_operator()
        self._orders.start()
        launcher = self._setup.open().launcher
        attempt = 0
        acts = acts_on(self._setup.source, self._setup.sink)
        for number, act in enumerate(acts, 1):
            self._orders.allowed = self._orders.total * number // (len(acts) + 1)
            attempt = self._next_attempt(attempt)
            self._orders.allowed = self._orders.total * (2 * number + 1) // (2 * (len(acts) + 1))
            self._screen.say(f"ACT {number}/{len(acts)}: {act.title} (attempt {attempt})", "bold magenta")
            act.do(Scene(self._setup, launcher, attempt, self.until, self._screen.say))
            self._kills += act.kills
        self._orders.allowed = self._orders.total
        self.until(lambda: self._setup.landed() >= self._orders.total, f"the last order is {self._setup.sink.place}")
        self._screen.say("Every order was taken; draining.")
        status = self._setup.drain()
        self._tell()
        return self._count(len(acts)) and status == 0

    def _next_attempt(self, before: int) -> int:
        """Wait until an attempt after `before` has landed rows, and return it."""
        self.until(lambda: self._setup.latest_landing_attempt() > before, "the next attempt lands a batch")
        return self._setup.latest_landing_attempt()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while lines and bars continue."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            self._tell(_LOOK_SECONDS)
            self._screen.move(self._orders.produced, self._setup.landed())
            self._orders.check()
            if time.monotonic() > deadline:
                raise Stuck(f"It took longer than {_PATIENCE_SECONDS:.0f} s until {what}.")

    def _tell(self, seconds: float = 0.0) -> None:
        """Print what the operator has said, waiting a little for more."""
        try:
            while True:
                kind, words = self._setup.lines.get(timeout=seconds) if seconds else self._setup.lines.get_nowait()
                if kind != "Landed":
                    self._screen.say(f"{kind}: {words[:280]}", _STYLES.get(kind, "cyan"))
                seconds = 0.0
        except queue.Empty:
            return

    def _count(self, acts: int) -> bool:
        """Count with every reader of the sink, print, and return whether nothing is lost and nothing doubled."""
        say = self._screen.say
        say(f"{acts} acts, {self._kills} drivers killed.")
        counted = [self._is_right(count) for count in self._setup.sink.counts(self._setup, self._orders.total)]
        right = all(counted)  # every reader is asked, also after one that counts wrong
        say(
            "Every order took effect exactly once." if right else "THIS IS WRONG.",
            "bold green" if right else "bold red",
        )
        return right

    def _is_right(self, count: Count) -> bool:
        """Print what one reader counts, and return whether that is what was produced."""
        total, expected, say = self._orders.total, self._orders.amount_of_all(), self._screen.say
        lost, doubled = total - (count.distinct - count.foreign), count.rows - count.distinct
        self._screen.move(total, count.rows)
        say(f"Counted by {count.reader}:")
        say(f"  distinct ids {count.distinct:>12,} of {total:,}")
        say(f"  lost         {lost:>12,}")
        say(f"  doubled      {doubled:>12,}")
        say(f"  sum          {count.amount:>12,} of {expected:,}")
        return (lost, doubled, count.foreign) == (0, 0, 0) and count.amount == expected


def arguments() -> argparse.ArgumentParser:
    """Return the command line, whose help says what will be seen."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Runs a stream of orders through the local operator, kills and freezes its drivers on the way, and counts "
        "every order at the end.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--source", choices=list(SOURCES), default="kafka", help="where orders come from (default: %(default)s)"
    )
    parser.add_argument("--sink", choices=list(SINKS), default="postgres", help="where they go (default: %(default)s)")
    parser.add_argument(
        "--orders",
        type=_count_of_orders,
        help=f"how many orders (default: {KafkaTopic.orders:,} from Kafka, {KinesisStream.orders:,} from Kinesis)",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and checkpoints in DIR (a new folder)")
    return parser


def _count_of_orders(text: str) -> int:
    """Return the number of orders; too few would have landed before the last act."""
    if not text.isdigit() or int(text) < LEAST_ORDERS:
        raise argparse.ArgumentTypeError(f"give a whole number of at least {LEAST_ORDERS:,}")
    return int(text)


def main() -> int:
    """Put the setup up, play, and take it down."""
    options = arguments().parse_args()
    sink = SINKS[options.sink]()
    opened = SOURCES[options.source]
    total: int = options.orders or opened.orders
    with ExitStack() as stack:
        screen = stack.enter_context(Screen(total, sink.place))
        if options.keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactlyonce-demo-")))
        else:
            folder = options.keep.absolute()
            folder.mkdir(parents=True)
        screen.say(f"Starting PostgreSQL and {opened.product} on this machine")
        postgres = stack.enter_context(Postgres(folder / "postgres"))
        source: Source = opened(folder)
        stack.enter_context(source)
        setup = Setup(folder, source, postgres, sink)
        setup.prepare()
        stack.callback(setup.end_everything)
        orders = Orders(source, total)
        stack.callback(orders.stop)
        try:
            return 0 if Play(setup, orders, screen).run() else 1
        except AssertionError as problem:
            screen.say(str(problem), "bold red")
            log = folder / "operator.log"
            screen.say(f"The operator's last lines:\n{log.read_text()[-2000:]}" if log.exists() else "No operator ran.")
            return 1
        except KeyboardInterrupt:
            screen.say("Interrupted; ending what was started.")
            return 130


if __name__ == "__main__":
    sys.exit(main())
