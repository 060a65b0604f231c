"""Make the list in docs/spark-settings.md from the code that refuses; `--check` only tells whether it is up to date."""

from __future__ import annotations

import sys

from exactlyonce.api import refused_conf
from exactlyonce.schema.places import S3A_BUCKETS
from scripts.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "spark-settings.md"
MARK = "<!-- made: do not edit below -->\n"


def page() -> str:
    """Return the page as it should be."""
    head = PAGE.read_text().split(MARK)[0]
    rows = [(f"`{key}`", reason) for key, reason in refused_conf.ALWAYS.items()]
    rows += [(f"`{key}`, unless `false`", reason) for key, reason in refused_conf.WHEN_TRUE.items()]
    rows += [
        (f"`{key}`, unless {' or '.join(f'`{value}`' for value in values)}", reason)
        for key, (values, reason) in refused_conf.ONE_OF.items()
    ]
    rows += [(f"`{prefix}…`", reason) for prefix, reason in refused_conf.PREFIXES.items()]
    tuning = ", ".join(f"`{name.removeprefix(refused_conf.S3A)}`" for name in refused_conf.S3A_TUNING)
    rows += [
        (
            f"`{refused_conf.S3A}…`, unless it is `{S3A_BUCKETS}…` or one of {tuning}",
            refused_conf.S3A_REASON,
        ),
        (f"`{S3A_BUCKETS}…` of the checkpoint's own bucket", "describe its service in spec.checkpoint.s3"),
        (f"`{S3A_BUCKETS}…` of the bucket of sink.files", "describe its service in spec.sink.files"),
        (
            "`spark.task.maxFailures`, `spark.stage.maxConsecutiveAttempts` with `delivery: AtMostOnce`",
            "a task runs once",
        ),
    ]
    words = ", ".join(f"`{word}`" for word in refused_conf.SECRET_WORDS)
    rows += [
        (f"what has one of {words} in its name", "credentials belong in a secret, which a resource shows to no one")
    ]
    lines = [f"| {what} | {reason} |" for what, reason in sorted(rows)]
    return head + MARK + "\n".join(["", "| Setting | Why it is refused |", "|---|---|", *lines, ""])


def main() -> int:
    """Write the page, or check it."""
    return write_or_check({PAGE: page()}, "the code refuses", "spark_settings_page")


if __name__ == "__main__":
    sys.exit(main())
