"""A pass over a resource, with the API server in memory: what is written down, and what is left alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from exactlyonce.api.conditions import rendered
from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.status import DriverStatus, Phase, StreamStatus
from exactlyonce.control.allowlists import admitted_stream, parse_allowlists, still_admitted
from exactlyonce.control.cluster import ClusterRefused, ClusterUnreachable, ResourceNotAccepted
from exactlyonce.control.incomplete import StreamIncomplete
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.next_pass import WATCH_SECONDS, Next, next_pass
from exactlyonce.control.observer import Observer
from exactlyonce.control.pass_ports import Leaving, Making, PassPorts, Writing
from exactlyonce.control.resource_hashes import driver_plan, what_a_person_asks
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.stream_pass import (
    REFUSED_SECONDS,
    StreamPasses,
)
from exactlyonce.errors import SecretMissing
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.pod_settings import PodDefaults
from exactlyonce.launch.port import DriverState, Ended, Gone, NeverStarted, Running
from exactlyonce.ledger.rows import Owner
from exactlyonce.monitor.monitor import Monitor
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Wanted, Watching
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from tests.resource_documents import DORIS, changed, document
from tests.unit.resource_in_memory import KEY, NOW, VALID, OneDriver, ServerInMemory, resource


class NoLedger:
    """A ledger whose login nobody knows."""

    def view(self, stream_id: str) -> None:
        """Refuse."""
        missing()


def missing() -> None:
    """Tell what every stream of these tests lacks."""
    raise StreamIncomplete(SecretMissing("Secret shop/warehouse is not there; create it."))


def passes(
    server: ServerInMemory,
    may_act: Callable[[], bool] = lambda: True,
    driver: OneDriver | None = None,
    last_made: Stream | None = None,
    *,
    only_unmeasured: bool = False,
    parse: Callable[[Mapping[str, Any]], Stream] = lambda document: parse_stream(document, "the resource"),
) -> StreamPasses:
    """Return passes of streams whose secret is missing; `only_unmeasured`: the one of this very version is not known yet."""
    launcher = OneDriver(NeverStarted()) if driver is None else driver

    def ports_of(stream: Stream, given: Mapping[str, Any], statuses: ResourceStatus, report: Any) -> PassPorts:
        nothing: Any = NoLedger()
        stores = Stores(nothing, nothing, nothing)
        world = PassContext(
            stores,
            Attempts(launcher, (lambda: None) if only_unmeasured else missing),
            statuses,
            Place(Owner("cluster-1", "u-1"), lambda owner: False, asks_again=True),
            Reporter(report),
            Timing(lambda: NOW),
        )
        return PassPorts(world, driver_plan(stream.spec), launcher.clean_up, missing)

    api: Any = server
    observer = Observer(Monitor(), OperatorMetrics(CollectorRegistry()))
    rendering = lambda status, found: rendered(status, found, NOW)  # noqa: E731 - a word for the line below
    return StreamPasses(
        api,
        Making(ports_of, parse, lambda document: last_made, lambda document: launcher),
        Writing(rendering, may_act),
        Leaving(lambda found: 1.0),
        observer,
    )


def acted(server: ServerInMemory) -> None:
    """Let the status know what the resource asks for, as a pass before has written it."""
    passes(server).run(KEY)


@pytest.mark.parametrize("phase", [Phase.HALTED, Phase.COMPLETED, Phase.SUSPENDED])
def test_a_missing_secret_does_not_wake_a_stream_that_has_come_to_rest(phase: Phase) -> None:
    server = ServerInMemory(resource())
    acted(server)
    assert server.resource is not None
    changes = {"status.phase": str(phase), "status.message": "why it rests", "spec.suspend": phase is Phase.SUSPENDED}
    server.resource = changed(server.resource, changes)
    passes(server).run(KEY)
    assert (server.resource["status"]["phase"], server.resource["status"]["message"]) == (phase, "why it rests")


def test_a_missing_secret_is_told_once_and_looked_for_again() -> None:
    server = ServerInMemory(resource())
    following = passes(server).run(KEY)
    assert following.after_seconds is not None
    assert server.resource is not None
    assert server.resource["status"]["message"] == "Secret shop/warehouse is not there; create it."
    writes = server.writes
    passes(server).run(KEY)
    assert (server.events, server.writes) == (["BackingOff"], writes)


@pytest.mark.parametrize("spec", [{"history": 6}, {"history": 3}], ids=["another value", "the default, written out"])
def test_each_generation_of_a_resource_is_said_to_have_been_looked_at(spec: dict[str, Any]) -> None:
    server = ServerInMemory(resource())
    passes(server).run(KEY)
    assert server.resource is not None
    changes = {"metadata.generation": 2, **{f"spec.{key}": value for key, value in spec.items()}}
    server.resource = changed(server.resource, changes)
    passes(server).run(KEY)
    assert server.resource["status"]["observedGeneration"] == 2
    writes = server.writes
    passes(server).run(KEY)
    assert server.writes == writes, "once"


def running(plan: str | None = None, **changes: Any) -> ServerInMemory:
    """Return a server whose stream's third driver runs, as far as its status says."""
    made = resource(Phase.RUNNING, **changes)
    stream = parse_stream(document(), "the test")
    driver = DriverStatus(attempt=3, plan=plan or driver_plan(stream.spec))
    status = StreamStatus(
        phase=Phase.RUNNING, message="Attempt 3 runs.", attempt=3, driver=driver, acted_on=what_a_person_asks(stream)
    )
    return ServerInMemory(changed(made, {"status": rendered(status, made, NOW)}))


def acts(driver: OneDriver) -> list[str]:
    """Return what a driver was asked to do."""
    return [it for it in driver.asked if not it.startswith("clean up")]


def shown(server: ServerInMemory) -> tuple[str, str]:
    """Return phase and message of the stream."""
    assert server.resource is not None
    return server.resource["status"]["phase"], server.resource["status"]["message"]


def test_a_driver_that_runs_is_still_said_to_run_while_a_secret_is_missing() -> None:
    server, driver = running(plan="another"), OneDriver(Running("it runs"))
    passes(server, driver=driver).run(KEY)
    assert shown(server) == ("Running", "Secret shop/warehouse is not there; create it.")
    assert driver.asked == []
    assert server.resource is not None
    status = {**server.resource["status"], "driver": {"attempt": 3, "plan": driver_plan(VALID.spec)}}
    server.resource = changed(server.resource, {"status": status})
    passes(server, driver=driver).run(KEY)
    assert shown(server) == ("Running", "Attempt 3 runs."), "what it asks for is again what runs"


def test_what_a_stream_lacks_for_its_lag_alone_is_an_event_once_and_keeps_nothing_from_being_cleaned_up() -> None:
    server, driver = running(), OneDriver(Ended("reaped", None, "it was killed"))
    assert server.resource is not None
    ended = {"attempt": 3, "ended": "Crashed", "plan": driver_plan(VALID.spec)}
    changes = {"status.driver": ended, "status.phase": "Suspended", "spec.suspend": True, "metadata.generation": 2}
    server.resource = changed(server.resource, changes)
    of_one_operator = passes(server, driver=driver, only_unmeasured=True)
    following = of_one_operator.run(KEY)
    assert driver.asked == ["clean up to 3, keep 3"]
    assert shown(server)[0] == "Suspended"
    assert following.after_seconds is not None
    assert following.after_seconds < 60
    of_one_operator.run(KEY)
    assert server.events == ["BackingOff"]


def test_what_an_ended_attempt_has_left_is_cleaned_up_while_the_next_one_cannot_be_made() -> None:
    """An operator may die between the record of an ending and its clean-up; the pod left then may fill the quota."""
    server, driver = running(), OneDriver(Gone("its node is lost"))
    assert server.resource is not None
    ended = {"attempt": 3, "ended": "NodeLost", "plan": driver_plan(VALID.spec)}
    server.resource = changed(server.resource, {"status.driver": ended, "status.phase": "BackingOff"})
    passes(server, driver=driver).run(KEY)
    assert driver.asked == ["clean up to 3, keep 3"]


def test_a_stream_that_is_to_run_again_is_not_said_to_rest_while_its_secret_is_missing() -> None:
    server = running()
    assert server.resource is not None
    ended = {"attempt": 3, "ended": "Drained", "plan": driver_plan(VALID.spec)}
    server.resource = changed(server.resource, {"status.driver": ended, "status.phase": "Suspended"})
    passes(server, driver=OneDriver(Gone("deleted"))).run(KEY)
    assert shown(server) == ("BackingOff", "Secret shop/warehouse is not there; create it.")


@pytest.mark.parametrize("state", [Gone("it was deleted before it began"), Ended("reaped", None, "it was killed")])
def test_a_stream_comes_to_rest_without_its_secret_however_its_driver_has_ended(state: DriverState) -> None:
    server = running(spec__suspend=True)
    for _ in range(2):
        passes(server, driver=OneDriver(state)).run(KEY)
    assert shown(server)[0] == "Suspended"


def test_a_driver_is_not_drained_for_a_successor_whose_secret_is_missing_and_is_drained_to_rest() -> None:
    server, driver = running(plan="another"), OneDriver(Running("it runs"))
    passes(server, driver=driver).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Running", [])
    assert server.resource is not None
    server.resource = changed(server.resource, {"spec.suspend": True, "metadata.generation": 2})
    passes(server, driver=driver).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Draining", ["drain"])
    driver.state = Ended("reaped", LastMessage(Ending.DRAINED, "It has drained.", None), "it ended")
    passes(server, driver=driver).run(KEY)
    assert shown(server)[0] == "Suspended", "what it did is known without the ledger"


def test_a_driver_that_dies_while_a_secret_is_missing_is_not_said_to_run() -> None:
    server = running()
    passes(server, driver=OneDriver(Gone("its node is lost"))).run(KEY)
    assert shown(server) == ("BackingOff", "Secret shop/warehouse is not there; create it.")


def test_a_spec_that_turns_invalid_is_told_once_and_its_driver_left_alone() -> None:
    server, driver = ServerInMemory(resource(Phase.RUNNING, spec__delivery="Sometimes")), OneDriver(Running("it runs"))
    passes(server, driver=driver).run(KEY)
    passes(server, driver=driver).run(KEY)
    assert server.resource is not None
    assert server.resource["status"]["phase"] == "Running"
    assert "Sometimes" in server.resource["status"]["specProblem"]
    assert (server.events, driver.asked) == (["SpecInvalid"], [])


def test_a_resource_whose_checkpoint_the_server_has_pruned_says_so_its_driver_is_left_alone_and_it_can_be_suspended() -> (
    None
):
    server, driver = ServerInMemory(resource(Phase.RUNNING, spec__checkpoint={})), OneDriver(Running("it runs"))
    passes(server, driver=driver).run(KEY)
    assert server.resource is not None
    told = server.resource["status"]["specProblem"]
    assert told == "the resource: spec.checkpoint: give exactly one of: s3, volume, local."
    assert (server.resource["status"]["phase"], server.events, acts(driver)) == ("Running", ["SpecInvalid"], [])
    server.resource = changed(server.resource, {"spec.suspend": True})
    passes(server, driver=driver).run(KEY)
    driver.state = Gone("it has ended")
    passes(server, driver=driver).run(KEY)
    assert shown(server)[0] == "Suspended", (
        "so that the checkpoint may be changed, which the API server allows then alone"
    )


def test_the_last_spec_that_could_be_used_is_kept_to_while_the_latest_cannot() -> None:
    server, driver = running(plan="as it was", spec__delivery="Sometimes"), OneDriver(Running("it runs"))
    passes(server, driver=driver, last_made=VALID).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Running", []), "its plan is the one that it was made of"
    driver.state = Gone("its node is lost")
    passes(server, driver=driver, last_made=VALID).run(KEY)
    assert shown(server)[0] == "BackingOff", "its death is seen, and the next attempt waits for the secret"
    assert server.resource is not None
    assert "Sometimes" in server.resource["status"]["specProblem"]
    driver.state = Running("it runs")
    server.resource = changed(server.resource, {"spec.suspend": True})
    passes(server, driver=driver, last_made=VALID).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Draining", ["drain"]), "suspend is obeyed"


@pytest.mark.parametrize(
    "last_made", [None, parse_stream(document({"spec.history": 5}), "the test")], ids=["none", "changed since, validly"]
)
def test_where_no_last_valid_spec_can_be_had_nothing_is_started_and_the_driver_is_looked_at_and_drained(
    last_made: Stream | None,
) -> None:
    server, driver = running(spec__delivery="Sometimes"), OneDriver(Running("it runs"))
    passes(server, driver=driver, last_made=last_made).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Running", [])
    driver.state = Gone("its node is lost")
    passes(server, driver=driver, last_made=last_made).run(KEY)
    assert shown(server)[0] == "BackingOff", "OneDriver refuses to start"
    driver.state = Running("it runs")
    assert server.resource is not None
    server.resource = changed(server.resource, {"spec.suspend": True})
    passes(server, driver=driver, last_made=last_made).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Draining", ["drain"])
    driver.state = Gone("it is gone")
    passes(server, driver=driver, last_made=last_made).run(KEY)
    assert shown(server)[0] == "Suspended"
    writes = server.writes
    passes(server, driver=driver, last_made=last_made).run(KEY)
    assert server.writes == writes


def test_a_stream_that_names_what_its_namespace_may_not_is_stalled_and_no_attempt_is_made() -> None:
    lists = parse_allowlists('[{"namespaces": ["shop"], "images": ["registry.example/*"]}]')
    admitted = functools.partial(admitted_stream, allowlists=lists, defaults=PodDefaults("exactlyonce-driver"))
    server = ServerInMemory(resource(spec__image="other.example/spark:1"))
    for _ in range(2):
        passes(server, parse=admitted).run(KEY)
    assert server.resource is not None
    (stalled,) = [it for it in server.resource["status"]["conditions"] if it["type"] == "Stalled"]
    assert (stalled["status"], stalled["reason"], server.events) == ("True", "SpecInvalid", ["SpecInvalid"])
    assert stalled["message"].startswith(
        "the resource: spec.image: 'other.example/spark:1' is not allowed; in namespace shop"
    )
    assert "ask the administrator" in stalled["message"]
    assert server.resource["status"]["attempt"] == 3, "no attempt is recorded"

    server.resource = changed(server.resource, {"spec.image": "registry.example/spark:1"})
    passes(server, parse=admitted).run(KEY)
    assert shown(server)[1] == "Secret shop/warehouse is not there; create it.", "it continues as soon as it may"


def test_a_driver_that_runs_when_the_lists_get_shorter_runs_on_and_has_no_successor() -> None:
    lists = parse_allowlists('[{"namespaces": ["shop"], "images": []}]')
    admitted = functools.partial(admitted_stream, allowlists=lists, defaults=PodDefaults("exactlyonce-driver"))
    server, driver = running(spec__image="other.example/spark:1"), OneDriver(Running("it runs"))
    passes(server, driver=driver, parse=admitted).run(KEY)
    assert (shown(server)[0], acts(driver)) == ("Running", [])
    driver.state = Gone("its node is lost")
    passes(server, driver=driver, parse=admitted).run(KEY)
    assert shown(server)[0] == "BackingOff"
    assert server.resource is not None
    assert "spec.image: 'other.example/spark:1' is not allowed" in server.resource["status"]["specProblem"]


def test_the_spec_of_the_last_attempt_is_kept_to_only_while_the_lists_allow_it() -> None:
    image = parse_stream(document({"spec.image": "other.example/spark:1"}), "the test")
    defaults = PodDefaults("exactlyonce-driver")
    allowing, refusing = (
        parse_allowlists(f'[{{"namespaces": ["*"], "images": {listed}}}]') for listed in ('["other.example/*"]', "[]")
    )
    assert still_admitted(image, allowing, defaults) is image
    assert still_admitted(image, refusing, defaults) is None
    assert still_admitted(None, allowing, defaults) is None


def test_a_driver_that_would_be_given_up_soon_is_looked_at_then() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=15)
    assert next_pass(Watching(Epoch(1), soon), Wanted.RUN).after_seconds == pytest.approx(15, abs=1)
    assert next_pass(Watching(Epoch(1), soon + timedelta(hours=1)), Wanted.RUN) == Next(WATCH_SECONDS)
    assert next_pass(Watching(Epoch(1)), Wanted.RUN) == Next(WATCH_SECONDS)


def test_an_operator_without_the_lease_writes_nothing() -> None:
    server = ServerInMemory(resource())
    assert passes(server, may_act=lambda: False).run(KEY) == Next(2.0), "it may lead again a moment later"
    assert (server.writes, server.events) == (0, [])


@pytest.mark.parametrize(
    ("problem", "seconds"), [(ClusterUnreachable("silence"), 5.0), (ClusterRefused("no right"), REFUSED_SECONDS)]
)
def test_an_api_server_that_does_not_help_puts_the_pass_off(problem: Exception, seconds: float) -> None:
    assert passes(ServerInMemory(resource(), problem=problem)).run(KEY) == Next(seconds)


def test_a_resource_whose_status_nobody_can_write_is_told_in_an_event() -> None:
    server = ServerInMemory(resource())

    def refused(*_: object) -> dict[str, Any]:
        raise ResourceNotAccepted("The API server takes no change of it.")

    server.put_status = refused  # type: ignore[method-assign,assignment] # what a server may do
    assert passes(server).run(KEY) == Next(REFUSED_SECONDS)
    assert "NotAccepted" in server.events


def test_what_is_valid_and_may_not_be_meant_is_an_event_once_for_each_spec() -> None:
    doris = {**DORIS, "labelFormat": "Compatible"}
    checkpoint = {"s3": {"location": "s3a://checkpoints" + "/of-a-team" * 12}}
    changes = {"spec.sink": {"doris": doris}, "spec.checkpoint": checkpoint, "spec.trigger": {"interval": "60s"}}
    server = ServerInMemory(changed(resource(), changes))
    for _ in range(2):
        passes(server).run(KEY)
    assert server.events.count("Advice") == 1


def test_a_resource_that_is_gone_is_not_looked_at_again() -> None:
    assert passes(ServerInMemory(None)).run(KEY) == Next(None)
