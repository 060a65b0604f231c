"""The page of metrics: made at each scrape where that is quick, and ahead of the scrapes where a large fleet makes it slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest

_QUICK_SECONDS = 0.25
_PAUSES = 10
"""A page that takes a second is made every ten: the passes keep nine tenths of the core that Python has."""
_FORGOTTEN_SECONDS = 180.0
"""Where nobody has scraped for that long, no page is made ahead."""


@dataclass
class MetricsPage:
    """The text of all series; for one event loop, which continues while a thread makes the text."""

    registry: CollectorRegistry
    clock: Callable[[], float] = time.monotonic
    _text: bytes | None = None
    _made: float = float("-inf")
    _took_seconds: float = 0.0
    _asked: float = float("-inf")
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ahead: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """Return the page as it is now, or as it was a moment ago where a scrape would have to wait for it."""
        self._asked = now = self.clock()
        if self._text is None or self._took_seconds < _QUICK_SECONDS or now - self._made > _FORGOTTEN_SECONDS:
            return await self._make(now)
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.create_task(self._make_ahead(), name="page of metrics")
        return self._text

    async def end(self) -> None:
        """Make no more pages."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def _make(self, asked: float) -> bytes:
        """Make the page, unless somebody else has made one since it was asked for."""
        async with self._making:
            if self._text is None or self._made <= asked:
                begun = self.clock()
                self._text = await asyncio.to_thread(generate_latest, self.registry)
                self._made = self.clock()
                self._took_seconds = self._made - begun
            return self._text

    async def _make_ahead(self) -> None:
        while self.clock() - self._asked < _FORGOTTEN_SECONDS:
            await asyncio.sleep(self._took_seconds * _PAUSES)
            await self._make(self.clock())
