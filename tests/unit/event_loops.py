"""What tests of something that works in an event loop wait with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(so: Callable[[], bool]) -> None:
    """Wait for what the loop's other tasks, or threads, bring about; at most a minute."""
    async with asyncio.timeout(60):
        while not so():
            await asyncio.sleep(0.01)
