"""`deletionPolicy: Delete` takes away what is the resource's own, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.checkpoint.generation import Marker, create_marker, replace_marker
from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.deletion import StillErasing
from exactlyonce.control.erase import erase
from exactlyonce.control.lease import NotLeading
from exactlyonce.ledger.rows import Owner
from tests.resource_documents import changed, document

OURS = Owner("cluster-1", "shop/orders/u-1")
COPY = changed(document(), {"metadata.uid": "u-1"})
TOKEN = "token-1"


@dataclass
class OneRow:
    """A ledger with the row of one stream, or none."""

    owner: Owner | None
    forgotten: list[Owner] = field(default_factory=list)

    def view(self, stream_id: str) -> Any:
        """Return the row."""
        assert stream_id == "shop/orders"
        return (
            None
            if self.owner is None
            else SimpleNamespace(stream=SimpleNamespace(stream_id=stream_id, owner=self.owner, token=TOKEN))
        )

    def forget(self, stream_id: str, owner: Owner) -> None:
        """Write it down."""
        self.forgotten.append(owner)


def location(folder: Path, token: str | None = TOKEN, stream_id: str = "shop/orders") -> LocalLogStore:
    """Return a location with one generation, marked as a stream's, and with what its source keeps."""
    store = LocalLogStore(str(folder))
    store.create("source/of-a-folder/list", b"v1")
    store.create("generation-000001-a1/metadata", b"{}")
    if token is not None:
        create_marker(store, Marker(stream_id, token))
    return store


def files(folder: Path) -> set[str]:
    """Return the files below a folder."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def erased(ledger: OneRow, store: LocalLogStore, may_act: Callable[[], bool] = lambda: True) -> str | None:
    """Erase what the resource names."""
    places = Bulkheads(1)
    erasable = SimpleNamespace(
        ledger=ledger, at_ledger=places.store("ledger"), checkpoints=store, at_checkpoints=places.store("lake")
    )
    parts: Any = SimpleNamespace(
        cluster=SimpleNamespace(cluster_id="cluster-1"), erasable=lambda stream: erasable, may_act=may_act
    )
    return erase(parts, COPY)


def test_what_is_its_own_goes_and_doing_it_again_is_harmless(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path)
    assert erased(ledger, store) is None
    assert files(tmp_path) == set()
    assert ledger.forgotten == [OURS]
    ledger.owner = None
    assert erased(ledger, store) is None


def test_a_copy_of_anothers_resource_takes_nothing_away(tmp_path: Path) -> None:
    ledger, store = OneRow(Owner("cluster-2", "shop/orders/u-9")), location(tmp_path)
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "belong to" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [])


def test_a_resource_that_never_ran_takes_nothing_away(tmp_path: Path) -> None:
    ledger, store = OneRow(None), location(tmp_path)
    before = files(tmp_path)
    erased(ledger, store)
    assert (files(tmp_path), ledger.forgotten) == (before, [])


@pytest.mark.parametrize("token", ["token-of-another", None])
def test_a_checkpoint_that_is_not_marked_as_its_own_stays(token: str | None, tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path, token)
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "stays" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [OURS])


def test_a_checkpoint_that_is_marked_as_another_streams_stays_whatever_its_token(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path, stream_id="shop/sales")
    before = files(tmp_path)
    left = erased(ledger, store)
    assert left is not None
    assert "is marked as that of another stream" in left
    assert (files(tmp_path), ledger.forgotten) == (before, [OURS])


class AdoptedMeanwhile(LocalLogStore):
    """A location that another stream adopts while its first generation is being removed."""

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove it, and be the other stream."""
        replace_marker(self, Marker("shop/orders", TOKEN), Marker("shop/sales", "token-2"))
        return super().remove(path, is_enough)


def test_a_location_that_is_adopted_while_it_is_erased_keeps_what_is_still_there(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), AdoptedMeanwhile(str(location(tmp_path).location))
    store.create("generation-000002-a2/metadata", b"{}")
    left = erased(ledger, store)
    assert left is not None
    assert "is marked as that of another stream" in left
    assert files(tmp_path) == {"generation-000002-a2/metadata", "source/of-a-folder/list", "stream.json"}


class Page(LocalLogStore):
    """A store that removes a file at a time, and asks after each whether that is enough."""

    def remove(self, path: str, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Remove one file."""
        for entry in self.list(path) if (Path(self.location) / path).is_dir() else ():
            super().remove(f"{path}/{entry.name}")
            if is_enough():
                return False
        return super().remove(path)


def test_a_large_checkpoint_goes_in_several_passes_and_the_row_that_tells_whose_it_is_goes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, store = OneRow(OURS), Page(str(location(tmp_path).location))
    for number in range(3):
        store.create(f"generation-000001-a1/file-{number}", b"{}")
    monkeypatch.setattr("exactlyonce.control.erase._ONE_PASS_SECONDS", -1.0)
    before = len(files(tmp_path))
    for _ in range(3):
        with pytest.raises(StillErasing):
            erased(ledger, store)
        assert len(files(tmp_path)) < before
        before = len(files(tmp_path))
        assert ledger.forgotten == []
    monkeypatch.setattr("exactlyonce.control.erase._ONE_PASS_SECONDS", 60.0)
    erased(ledger, store)
    assert (files(tmp_path), ledger.forgotten) == (set(), [OURS])


def test_an_operator_that_has_lost_the_lease_takes_no_row_away(tmp_path: Path) -> None:
    ledger, store = OneRow(OURS), location(tmp_path)
    with pytest.raises(NotLeading):
        erased(ledger, store, lambda: False)
    assert ledger.forgotten == []
