"""The named points between every two requests of the log, at which a test may end the process."""

POINTS = (
    "log.before-origin",
    "log.listed",
    "log.before-create",
    "log.create-unanswered",
    "log.created",
    "log.verified",
    "log.before-archive",
    "log.archived",
    "log.before-snapshot",
    "log.snapshot-created",
    "log.before-prune",
    "log.pruned",
)
"""In the order in which a transaction passes them."""
