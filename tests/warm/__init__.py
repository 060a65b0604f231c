"""Drivers whose JVM was used before: a new one costs ten seconds of both cores, and most tests are about something else.

What a test runs is the real driver as a process of its own; only the JVM that PySpark would have started for it is one that is
there already, which PySpark allows (PYSPARK_GATEWAY_PORT). `sitecustomize.py`, first on that process's PYTHONPATH, asks the
pool for it over a socket that stays open for as long as the process lives.

- A driver that ends by itself stops its queries and its Spark context and says so. Then the next one gets its JVM, and makes
  a context of its own.
- A driver that dies in any other way takes its JVM with it, by SIGKILL, before its launcher tells that it has ended: what a
  test claims of a death, it shows with a death.
- A JVM of its own has a driver whose JVM has other options, another environment or a login in it, one that is to be killed or
  frozen from inside a task, and one of a test that is about processes: `Rig.cold`.
- With EVERY_MODE=1, which `make test-full` sets, every driver has a JVM of its own; with COLD_DRIVERS=1 too.
"""
