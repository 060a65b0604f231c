"""Spark's daemon of Python workers, which has imported what every task needs before it forks the first worker.

Spark starts one daemon per kind of worker and forks a worker for each task that runs at once. With
`pyspark.daemon`, each worker imports pyarrow, pandas and this project, which takes more than a second of a core. Here the
daemon imports them once, and its workers share that memory. `spark.python.daemon.module` names this module (session.py).
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module

_OF_TASKS = "pyspark.worker"
"""What the daemon is told to run for tasks; what plans a read runs once per daemon, and imports what it needs by itself."""

_IN_EVERY_TASK = ("exactlyonce_spark.worker", "exactlyonce_spark.tasks")


def import_for(worker: str) -> None:
    """Import what the workers of a kind need. Nothing is opened or connected to: a fork would share it."""
    if worker != _OF_TASKS:
        return
    with suppress(ImportError):  # pyarrow looks for it whenever it makes an array, and does without
        import_module("pandas")
    for name in _IN_EVERY_TASK:
        import_module(name)


def main() -> None:
    """Run the daemon; `pyspark.daemon` reads the kind of worker from the command line as well."""
    import_for(sys.argv[1])
    gc.freeze()  # a worker collects garbage after every task, and looked through all that was imported: 60 milliseconds
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
