"""One stream of a cluster with everything in memory: its resource, ledger, checkpoint, and pods that are what a test says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import ResourceInvalid, Stream, parse_stream
from exactlyonce.api.status import StreamStatus
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.control.allowlists import admitted_stream, parse_allowlists, still_admitted
from exactlyonce.control.incomplete import rehearsing
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.next_pass import Next
from exactlyonce.control.observer import Observer
from exactlyonce.control.pass_ports import Leaving, Making, PassPorts, Writing
from exactlyonce.control.resource_hashes import driver_plan
from exactlyonce.control.resource_status import ResourceStatus, status_of
from exactlyonce.control.rollback import Rollback, defaults_in_force
from exactlyonce.control.stream_pass import StreamPasses
from exactlyonce.launch.driver_document import Image
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_endings import Reason
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.launch.port import (
    NO_ORDERS,
    DriverPod,
    Ended,
    Gone,
    NotCreated,
    Orders,
    Running,
)
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import claim_epoch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchRow, BatchStatus
from exactlyonce.monitor.monitor import Monitor
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from tests.resource_documents import changed
from tests.unit.passes import KEYS, STREAM, Drivers, Machine
from tests.unit.resource_in_memory import KEY, ServerInMemory, resource

GOOD_IMAGE, BAD_IMAGE, DEFAULT_IMAGE = (
    "registry.example/spark:1",
    "registry.example/spark:2",
    "registry.example/default:1",
)
NOT_PULLABLE = str(Reason.IMAGE_NOT_PULLABLE)
CRASHED = Ended("reaped", None, "It crashed.", str(Reason.CRASHED))


@dataclass
class Pods(Drivers):
    """Drivers whose attempts are made of the spec of `made_of`, and leave that and their image behind."""

    made_of: Callable[[], tuple[Stream, str]] = lambda: (_ for _ in ()).throw(AssertionError)
    specs: dict[Epoch, dict[str, Any]] = field(default_factory=dict)
    images: dict[Epoch, str] = field(default_factory=dict)
    refusal: Exception | None = None

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Start it, or refuse to."""
        stream, image = self.made_of()
        self.orders[attempt] = orders
        self.step(f"start driver {attempt}")
        if self.refusal is not None:
            raise self.refusal
        self.specs[attempt], self.images[attempt] = stream.spec.differences("suspend"), image
        self.states.setdefault(attempt, Running("in memory", pod=DriverPod(f"orders-{attempt}", image)))

    def clean_up(self, recorded: Epoch, keep: int, good: Epoch | None = None) -> None:
        """Let go of all but the newest and the good one's."""
        newest = max(self.specs, default=recorded)
        self.specs = {it: spec for it, spec in self.specs.items() if it > recorded or it in (newest, good)}


class Cluster(ServerInMemory):
    """An API server before each of whose writes the operator may die; `told` are the sentences of its events."""

    step: Callable[[str], None] = staticmethod(lambda name: None)

    def put_status(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the status."""
        self.step(f"record {sent['status']['phase']}")
        return super().put_status(sent)

    def tell(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Record an event."""
        self.step(f"tell {reason}")
        super().tell(about, reason, message, warning=warning)
        self.told = [*getattr(self, "told", []), message]


class Life:
    """One stream's life under an operator which remembers nothing between two passes."""

    def __init__(self, **spec: Any) -> None:
        self.machine = Machine()
        self.pods = Pods(self.machine._step)
        self.server = Cluster(resource(spec__image=GOOD_IMAGE, status=None))
        self.server.step = self.machine._step
        self.default_image = DEFAULT_IMAGE
        self.lists = ""
        self.missing_account = ""
        self.change(**{"spec.checkpoint": {"local": {"path": self.machine.store.location}}, **spec})
        del self.resource["status"]

    @property
    def resource(self) -> dict[str, Any]:
        assert self.server.resource is not None
        return self.server.resource

    @property
    def status(self) -> StreamStatus:
        return status_of(self.resource)

    @property
    def defaults(self) -> PodDefaults:
        return PodDefaults("spark", Image(self.default_image, "IfNotPresent", ("registry-login",)))

    @property
    def stalled(self) -> tuple[str, str]:
        """The condition Stalled: its status and reason."""
        (found,) = [it for it in self.resource["status"]["conditions"] if it["type"] == "Stalled"]
        return found["status"], found["reason"]

    def change(self, **changes: Any) -> None:
        """Change the resource as a person would."""
        generation = self.resource["metadata"]["generation"] + 1
        self.server.resource = changed(self.resource, {"metadata.generation": generation, **changes})

    def run_pass(self) -> Next:
        """Let a new operator do one pass."""
        defaults = self.defaults
        lists = parse_allowlists(self.lists)

        def ports_of(stream: Stream, given: Mapping[str, Any], statuses: ResourceStatus, report: Any) -> PassPorts:
            def made() -> tuple[Stream, str]:
                now = defaults_in_force(defaults, stream, statuses.read()[0])
                return stream, resolve(stream, Epoch(1), "u-1", now).image.name

            self.pods.made_of = made

            def rehearse() -> None:
                if stream.spec.driver.service_account_name == self.missing_account:
                    raise NotCreated(f"There is no service account {self.missing_account}.")

            world = PassContext(
                Stores(self.machine.ledger, self.machine.store, self.machine.topic),
                Attempts(self.pods, rehearse=rehearsing(rehearse)),
                statuses,
                Place(self.machine.owner, lambda owner: False, lambda: self.machine.in_pod, asks_again=True),
                Reporter(report),
                Timing(lambda: self.machine.now, lambda: True),
            )

            def clean_up(recorded: Epoch, keep: int) -> None:
                good = statuses.read()[0].last_good
                self.pods.clean_up(recorded, keep, None if good is None else Epoch(good.attempt))

            return PassPorts(world, driver_plan(stream.spec), clean_up)

        def made_by(document: Mapping[str, Any], attempt: Epoch) -> Stream | None:
            spec = self.pods.specs.get(attempt)
            try:
                made = None if spec is None else parse_stream({**document, "spec": spec}, "the test")
            except ResourceInvalid:
                made = None
            return still_admitted(made, lists, defaults)

        api: Any = self.server
        launcher: Any = self.pods
        passes = StreamPasses(
            api,
            Making(
                ports_of,
                functools.partial(admitted_stream, allowlists=lists, defaults=defaults),
                lambda document: made_by(document, max(self.pods.specs, default=Epoch(0))),
                lambda document: launcher,
            ),
            Writing(lambda status, found: rendered(status, found, self.machine.now), lambda: True),
            Leaving(lambda found: 1.0),
            Observer(Monitor(), OperatorMetrics(CollectorRegistry())),
            Rollback(made_by, self.default_image),
        )
        return passes.run(KEY)

    def settle(self, until: Callable[[], bool], passes: int = 40) -> None:
        """Pass, with time going by, until something is so."""
        for _ in range(passes):
            self.run_pass()
            if until():
                return
            self.machine.now += timedelta(hours=1)
        raise AssertionError(f"it does not come to that: {self.status}")

    def until_driver_of(self, image: str) -> Epoch:
        """Pass until a driver with an image is there, and return its attempt."""
        self.settle(lambda: self.pods.images.get(Epoch(self.status.attempt)) == image and self.driver_is_there())
        self.run_pass()
        return Epoch(self.status.attempt)

    def driver_is_there(self) -> bool:
        return isinstance(self.pods.state_of(Epoch(self.status.attempt)), Running)

    def end(self, ending: Gone | Ended) -> None:
        """End the latest driver."""
        attempt = Epoch(self.status.attempt)
        image = self.pods.images[attempt]
        self.pods.states[attempt] = replace(ending, pod=DriverPod(f"orders-{attempt}", image))
        self.run_pass()
        self.machine.now += timedelta(hours=1)

    def fail(self, image: str, times: int = 2, ending: Gone | Ended | None = None) -> None:
        """Let drivers of an image end before Spark is up."""
        for _ in range(times):
            self.until_driver_of(image)
            self.end(ending or Gone("The image cannot be pulled", NOT_PULLABLE))

    def begin_batch(self, attempt: Epoch) -> None:
        """Be the driver of an attempt: claim it and plan a batch."""
        ticket = self.pods.ticket(attempt)
        permit, row = claim_epoch(self.machine.ledger, STREAM, attempt, f"claim {attempt}", ticket)
        assert row.landed_batch is not None
        assert row.checkpoint_path is not None
        number, folder = BatchNumber(row.landed_batch + 1), row.checkpoint_path.rsplit("/", 1)[-1]
        end = Positions(dict.fromkeys(KEYS, 10))
        self.machine.store.files.setdefault(f"{folder}/commits/{number - 1}", files.render_commit())
        self.machine.store.files.setdefault(
            f"{folder}/offsets/{number}", files.render_offsets(CODEC.render_entry(end), 8)
        )
        with self.machine.ledger.transaction() as transaction:
            transaction.lock_stream(STREAM, Lock.UPDATE)
            ranges = transaction.read_positions(STREAM).positions.ranges_until(end)
            transaction.write_batch(STREAM, BatchRow(number, permit.epoch, BatchStatus.IN_PROGRESS, ranges))

    def decide_batch(self) -> None:
        """Be the driver that has planned a batch: decide it, with a load that the sink has not committed."""
        with self.machine.ledger.transaction() as transaction:
            row = transaction.lock_stream(STREAM, Lock.UPDATE)
            assert row is not None
            assert row.landed_batch is not None
            number = BatchNumber(row.landed_batch + 1)
            planned = transaction.read_batch(STREAM, number)
            assert planned is not None
            ids = {key.origin: self.machine.topic.id_of(key.origin) for key in planned.ranges}
            transaction.advance_positions(STREAM, planned.ranges, ids)
            transaction.write_batch(STREAM, replace(planned, status=BatchStatus.DECIDED))
            load = Committable(f"label-{number}", "71", 10, planned.ranges)
            transaction.write_decided(STREAM, DecidedBatch(number, (load,)))
            transaction.update_stream(replace(row, landed_batch=number))

    def replace_driver(self) -> None:
        """Let the driver that is asked to end do so."""
        attempt = Epoch(self.status.attempt)
        self.settle(lambda: attempt in self.pods.drained)
        self.end(Ended("reaped", LastMessage(Ending.DRAINED, "It has drained."), "it ended"))


def updated(changes: dict[str, Any] | None = None, *, started: Callable[[Life], None] = lambda life: None) -> Life:
    """Return a stream whose first driver has planned a batch and was drained for a changed resource."""
    life = Life()
    started(life)
    attempt = life.until_driver_of(life.resource["spec"].get("image") or life.default_image)
    life.begin_batch(attempt)
    life.run_pass()
    life.change(**(changes or {"spec.image": BAD_IMAGE}))
    life.replace_driver()
    life.server.events.clear()
    return life
