"""What the operator writes for the pod that reconciles, and what that pod says."""

from __future__ import annotations

import pytest

from exactlyonce.checkpoint.locations import StoreInPods
from exactlyonce.errors import StoreUnreachable
from exactlyonce.launch.pod_verdict import Outcome, PodVerdict, parse_pod_verdict
from exactlyonce.ledger.rows import Owner
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.observation import MayLive, NoPredecessor, Predecessor, ProvenDead
from tests.unit.passes import ME, Machine


@pytest.mark.parametrize("predecessor", [NoPredecessor(), ProvenDead("it was reaped"), MayLive("its node is lost")])
@pytest.mark.parametrize("gone", [None, Owner("cluster-1", "shop/orders/uid-0")])
def test_a_brief_is_read_as_it_was_written(predecessor: Predecessor, gone: Owner | None) -> None:
    machine = Machine()
    machine.spec = {
        "recovery": {"onSourceTruncated": "ResumeFromEarliest"},
        "driver": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
    }
    brief = Brief(machine.stream, ME, gone, predecessor, "ticket", shrunk=3, too_large=7)
    read = Brief.parse(brief.render())
    assert (read.shrunk, read.too_large) == (3, 7)
    assert (read.owner, read.gone_owner, read.predecessor) == (ME, gone, predecessor)
    assert read.stream.spec.recovery == machine.stream.spec.recovery
    assert "podTemplate" not in brief.render()


def test_a_predecessor_of_another_kind_is_not_guessed_at() -> None:
    text = Brief(Machine().stream, ME, None, NoPredecessor(), "ticket").render().replace('"None"', '"Sleeping"')
    with pytest.raises(ValueError, match="Sleeping is not a predecessor"):
        Brief.parse(text)


EVIDENCE = tuple({"words": f"{number} " + "ä" * 100, "batch": number} for number in range(40))


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize(
    "reason", ["short", 'a "quoted"\n' * 100, "ü" * 3000], ids=["short", "long", "longer than all"]
)
@pytest.mark.parametrize("evidence", [(), EVIDENCE[:1], EVIDENCE], ids=["none", "one", "much"])
def test_a_word_fits_a_termination_message_and_is_read_again(
    outcome: Outcome, reason: str, evidence: tuple[dict[str, object], ...]
) -> None:
    word = PodVerdict(outcome, reason, "Resume", 4, 4, 3, "/checkpoints/" + "x" * 1000, evidence)
    text = word.render()
    assert len(text.encode()) <= 4096
    read = parse_pod_verdict(text)
    assert read is not None
    assert (read.outcome, read.kind, read.batch, read.landed, read.generation, read.location) == (
        outcome, "Resume", 4, 4, 3, word.location,
    )  # fmt: skip
    assert reason.startswith(read.message)
    assert read.evidence == evidence[: len(read.evidence)]


def test_a_word_that_was_cut_off_says_what_is_left() -> None:
    text = PodVerdict(Outcome.HALTS, "The source is gone. " * 20, "SourceReplaced", None, 7).render()
    read = parse_pod_verdict(text[:200])
    assert read is not None
    assert (read.outcome, read.kind, read.landed) == (Outcome.HALTS, "SourceReplaced", 7)
    assert read.message.startswith("What it said was cut short: The source is gone.")


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last)", "[]", "{}", '{"outcome": "Other"}', "null"])
def test_what_is_no_word_is_none(text: str) -> None:
    assert parse_pod_verdict(text) is None


def test_whoever_asks_for_a_checkpoint_on_a_claim_outside_of_its_pods_is_told_that_it_is_out_of_reach() -> None:
    store = StoreInPods("/checkpoints/orders", "it is on a volume")
    for ask in (
        lambda: store.list(""), lambda: store.read("a"), lambda: store.create("a", b""),
        lambda: store.replace("a", b"", b""), lambda: store.remove("a"), lambda: store.tree(""), lambda: store.copy("a", "b"),
    ):  # fmt: skip
        with pytest.raises(StoreUnreachable, match="by the stream's own pods only: it is on a volume"):
            ask()
