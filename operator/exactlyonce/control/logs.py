"""The operator's log: a line of JSON, or of text, for each record, with the stream and attempt it is about."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_EXTRAS = ("stream", "attempt", "reason", "identity", "seconds")


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    """One line of text a record, with what it is about in front."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        about = " ".join(f"{name}={getattr(record, name)}" for name in _EXTRAS if hasattr(record, name))
        text = f"{datetime.fromtimestamp(record.created, UTC):%H:%M:%S} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{text} [{about}]" if about else text


def configure_logs(form: str) -> None:
    """Send all records to standard error in the form asked for; libraries speak up only when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("kopf", "kubernetes", "urllib3", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
