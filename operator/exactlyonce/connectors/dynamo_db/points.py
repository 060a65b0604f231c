"""The named points between every two requests that write, at which a test may end the process."""

POINTS = (
    "dynamo.before-upload",
    "dynamo.upload-begun",
    "dynamo.part-written",
    "dynamo.before-head",
    "dynamo.head-created",
    "dynamo.lost",
    "dynamo.head-deleted",
    "dynamo.upload-ended",
    "dynamo.part-deleted",
    "dynamo.swept",
)
"""In the order in which a large object passes them, from its creation to its deletion."""
