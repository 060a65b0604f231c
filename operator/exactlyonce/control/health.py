"""Whether the process is alive and ready, told from what it really does: passes, wake-ups, the Lease; and its metrics' page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from exactlyonce.control.lifecycle import Operator
from exactlyonce.control.metrics_page import MetricsPage

_STUCK_PASS_SECONDS = 900.0
_STUCK_QUEUE_SECONDS = 120.0
_STALE_LIST_SECONDS = 180.0


@dataclass(frozen=True)
class Health:
    """Answers of the probes; `is_watching` tells whether kopf has listed and watches."""

    operator: Operator
    clock: Callable[[], float]
    is_watching: Callable[[], bool]
    page: MetricsPage

    def problem(self) -> str | None:
        """Return why the process should be started again, or None while it does its work."""
        now, pulse = self.clock(), self.operator.pulse
        for key, begun in pulse.in_hand.items():
            if now - begun > _STUCK_PASS_SECONDS:
                return f"the pass of {key} has taken {now - begun:.0f} s"
        if self.operator.lease_silent_seconds > _STUCK_QUEUE_SECONDS:
            return f"the lease was last asked for {self.operator.lease_silent_seconds:.0f} s ago"
        waiting = self.operator.wakeups.waiting
        if self.operator.lease.is_held and waiting and now - pulse.last_pass > _STUCK_QUEUE_SECONDS:
            return f"{waiting} streams are due and no pass has ended for {now - pulse.last_pass:.0f} s"
        return None

    def lack(self) -> str | None:
        """Return what is missing for this replica to do its work or to take over, or None.

        kopf says that it has begun to watch, not that the API server lets it, so the streams have to be listed too.
        """
        if not self.is_watching():
            return "not watching yet"
        if self.clock() - self.operator.pulse.last_list > _STALE_LIST_SECONDS:
            return "the streams could not be listed of late"
        return None

    def application(self) -> web.Application:
        """Return the pages: /livez, /readyz, /metrics."""

        async def live(_: web.Request) -> web.Response:
            problem = self.problem()
            return web.Response(text=problem or "ok", status=200 if problem is None else 503)

        async def ready(_: web.Request) -> web.Response:
            lack = self.lack()
            return web.Response(text=lack or "ok", status=200 if lack is None else 503)

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=await self.page.read(), headers={"Content-Type": CONTENT_TYPE_LATEST})

        application = web.Application()
        application.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)])
        return application
