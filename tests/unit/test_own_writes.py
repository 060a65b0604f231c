"""What a pass has written does not wake its stream again; what anyone else has written does, whenever it comes."""

from __future__ import annotations

from exactlyonce.control.own_writes import OwnWrites
from exactlyonce.control.wakeups import Key

ORDERS, RETURNS = Key("shop", "orders"), Key("shop", "returns")


def test_a_version_that_a_pass_has_written_wakes_nobody_after_it() -> None:
    own = OwnWrites()
    own.begins(ORDERS)
    own.wrote(ORDERS, "7")
    assert not own.ends(ORDERS)
    assert not own.wakes(ORDERS, "7")


def test_a_version_that_is_told_of_before_the_pass_knows_that_it_wrote_it_wakes_nobody() -> None:
    own = OwnWrites()
    own.begins(ORDERS)
    assert not own.wakes(ORDERS, "7"), "whose it is shows when the pass ends"
    own.wrote(ORDERS, "7")
    assert not own.ends(ORDERS)


def test_a_change_of_another_wakes_before_during_and_after_a_pass() -> None:
    own = OwnWrites()
    assert own.wakes(ORDERS, "5")
    own.begins(ORDERS)
    own.wrote(ORDERS, "7")
    for version in ("7", "8"):
        assert not own.wakes(ORDERS, version)
    assert own.ends(ORDERS), "8 is another's"
    assert own.wakes(ORDERS, "9")
    assert own.wakes(RETURNS, "7"), "another stream's version is none of this one's"


def test_of_a_stream_that_is_gone_nothing_is_kept() -> None:
    own = OwnWrites()
    own.begins(ORDERS)
    own.wrote(ORDERS, "7")
    own.ends(ORDERS)
    own.forget(ORDERS)
    assert own.wakes(ORDERS, "7")
