"""A life is drawn by a new start alone; an adoption makes another token of the same life."""

from __future__ import annotations

from exactlyonce.ledger.life import adopted_token, life_of, part_of_life
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels


def test_an_adoption_changes_the_token_and_keeps_the_life() -> None:
    once = adopted_token("token-1", "random-1")
    twice = adopted_token(once, "random-2")
    assert len({"token-1", once, twice}) == 3
    assert {part_of_life(it) for it in ("token-1", once, twice)} == {"token-1"}
    assert life_of("token-1") == life_of(once) == life_of(twice) != life_of("token-2")


def test_labels_of_loads_are_the_streams_own_after_an_adoption_and_not_after_a_new_start() -> None:
    def label(token: str) -> str:
        return LoadLabels("shop/orders", token).label(Epoch(1), BatchNumber(2), "0-a")

    assert label("token-1") == label(adopted_token("token-1", "random-1"))
    assert label("token-1") != label("token-2")
