"""What the testbed keeps in the user's cache is made once, whole, and stays while somebody uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed import cache

MAKE = """
import sys, time
from pathlib import Path
from testbed import cache

def make(folder):
    print("made", flush=True)
    (folder / "part").write_text("1")
    sys.stdin.readline()
    (folder / "whole").touch()

print(sorted(file.name for file in cache.made_once("things", "key", make).iterdir()), flush=True)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXACTLYONCE_CACHE", str(tmp_path))


def maker() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_that_ask_at_once_get_one_that_is_whole() -> None:
    with maker() as first:
        assert said(first) == "made"
        with maker() as second:
            first.communicate("\n", timeout=60)
            assert said(second) == "['part', 'whole']", "it waited for the first, and made nothing itself"


def test_one_that_was_killed_while_it_made_something_leaves_the_next_one_to_make_it() -> None:
    with maker() as first:
        assert said(first) == "made"
        first.kill()
    with maker() as second:
        assert said(second) == "made"
        assert second.communicate("\n", timeout=60)[0].strip() == "['part', 'whole']"


def test_what_could_not_be_made_is_not_there(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").touch()
        raise cache.NotMade("no")

    with pytest.raises(cache.NotMade):
        cache.made_once("things", "key", fail)
    assert not list(tmp_path.glob("**/part"))


def test_the_oldest_go_except_what_is_in_use() -> None:
    oldest, older = (cache.made_once("things", key, lambda _: None) for key in ("1", "2"))
    with cache.in_use(oldest):
        cache.made_once("things", "3", lambda _: None)
        cache.made_once("things", "4", lambda _: None)
        assert sorted(path.name for path in oldest.parent.iterdir() if path.is_dir()) == ["1", "3", "4"]
    assert not older.exists()
    cache.made_once("things", "5", lambda _: None)
    assert not oldest.exists()


def test_a_key_knows_what_is_in_files_and_not_in_which_order_they_come(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    before = cache.key_of([one, two], "x")
    assert cache.key_of([two, one], "x") == before
    assert cache.key_of([one, two], "y") != before
    two.write_text("3")
    assert cache.key_of([one, two], "x") != before


def test_a_command_that_fails_is_told_with_its_last_lines() -> None:
    with pytest.raises(cache.NotMade, match=r"Making tea failed \(status 3\)[^$]*\nno water"):
        cache.run(["sh", "-c", "echo no water; exit 3"], "Making tea")
