"""`python -m exactlyonce_spark`: run the driver of one attempt of one stream. Started by the operator, never by hand."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from pathlib import Path

from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.positions.ranges import Epoch
from exactlyonce_spark.drain import Drain, beat, drain_with_parent

EXIT_STATUS = {Ending.DRAINED: 0, Ending.COMPLETED: 0, Ending.FINISHED: 0, Ending.FENCED: 3}
_FAILED = 1


def main() -> int:
    """Run the driver, leave its last message and return the exit status: 0 it ended as it was to, 3 fenced, 1 failed."""
    parser = argparse.ArgumentParser(prog="python -m exactlyonce_spark", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="the stream's resolved spec (JSON)")
    parser.add_argument("--epoch", type=int, required=True, help="the attempt's epoch")
    parser.add_argument("--last-words", type=Path, required=True, help="the file that takes the driver's last message")
    parser.add_argument("--heartbeat", type=Path, help="a file to touch every second while the driver lives")
    parser.add_argument("--parent", type=int, help="drain when this process, the parent, ends")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    drain = Drain()
    drain.listen()
    if options.parent is not None:
        drain_with_parent(options.parent)
    if options.heartbeat is not None:
        beat(options.heartbeat)
    words = _run(options.spec, Epoch(options.epoch), drain)
    with contextlib.suppress(OSError):
        options.last_words.write_text(words.render())
    logging.getLogger("exactlyonce.driver").info("%s: %s", words.ending, words.whole_message)
    return EXIT_STATUS.get(words.ending, _FAILED)


def _run(document: Path, epoch: Epoch, drain: Drain) -> LastMessage:
    # Imported late: an ask to end that comes before there is someone to take it is lost to the first process of a container.
    from exactlyonce_spark.driver import run_driver
    from exactlyonce_spark.settings import DocumentUnreadable, DriverSpec

    try:
        return run_driver(DriverSpec.read(document), epoch, drain)
    except DocumentUnreadable as problem:
        return LastMessage(Ending.REFUSED, str(problem), case=type(problem).__name__)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # The JVM ends when its standard input closes; leaving through the interpreter's exit would wait for its callbacks.
    os._exit(status)
