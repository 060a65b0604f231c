"""The kinds of ledgers by name: the fixture `ledger` of the integration tests goes through them."""

OF_DATABASES = ["memory", "postgres 18", "postgres 16", "postgres 18 behind a pooler"]
"""Their transactions are those of the rows, too."""

OBJECT_LOGS = ["object log on a disk", "object log on S3"]

LEDGERS = [*OF_DATABASES, *OBJECT_LOGS]
