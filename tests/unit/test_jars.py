"""The jars of a driver: the lock, the folder they are kept in, and what is said when they cannot be had.

Ivy itself runs here, against a repository that is a folder of the test's own.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from exactlyonce_spark.jars import DRIVER_LOCK, Jar, JarsUnavailable, cache_folder, ensure_jars, main, read_lock

CONTENT = b"what a jar holds"
RIGHT, WRONG = hashlib.sha256(CONTENT).hexdigest(), hashlib.sha256(b"something else").hexdigest()
SETTINGS = """<ivysettings>
<settings defaultResolver="here"/>
<resolvers><filesystem name="here" m2compatible="true">
<ivy pattern="{folder}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
<artifact pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers>
</ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>one</artifactId><version>1.0</version></project>"""


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds one jar, and a cache of the test's own."""
    folder = tmp_path / "repository"
    (folder / "org/example/one/1.0").mkdir(parents=True)
    (folder / "org/example/one/1.0/one-1.0.jar").write_bytes(CONTENT)
    (folder / "org/example/one/1.0/one-1.0.pom").write_text(POM)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(folder=folder))
    monkeypatch.setenv("EXACTLYONCE_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("EXACTLYONCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EXACTLYONCE_JARS", raising=False)
    return folder


def lock(folder: Path, *lines: str) -> Path:
    """Return a lock file."""
    file = folder / "some.lock"
    file.write_text("\n".join(lines))
    return file


def test_a_lock_names_each_jar_with_its_hash_and_may_have_comments(tmp_path: Path) -> None:
    file = lock(tmp_path, "# a comment", "", f"org.example:one_2.13:1.0 {RIGHT} # why", f"  a:b:2  {WRONG}")
    assert read_lock(file) == [Jar("org.example", "one_2.13", "1.0", RIGHT), Jar("a", "b", "2", WRONG)]
    assert [jar.file_name for jar in read_lock(file)] == ["one_2.13-1.0.jar", "b-2.jar"]


def test_the_drivers_lock_pins_every_jar_once() -> None:
    jars = read_lock(DRIVER_LOCK)
    assert len({jar.file_name for jar in jars}) == len(jars) >= 10
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert [jar.version for jar in jars if jar.artifact == "hadoop-aws"] == ["3.5.0"]


def test_jars_are_fetched_once_into_a_folder_named_by_their_lock(tmp_path: Path, repository: Path) -> None:
    file, told = lock(tmp_path, f"org.example:one:1.0 {RIGHT}"), list[str]()
    folder = ensure_jars(file, told.append)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"one-1.0.jar": CONTENT}
    assert folder.parent == tmp_path / "cache" / "exactlyonce" / "jars"
    assert len(told) == 1
    assert "one" in told[0]
    (repository / "org/example/one/1.0/one-1.0.jar").unlink()
    assert ensure_jars(file, told.append) == folder, "nothing is fetched again"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing else is left"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"org.example:one:1.0 {WRONG}",
         f"one-1.0.jar has SHA-256 {RIGHT}, the lock says {WRONG}: it was not used."),
        (f"org.example:two:1.0 {RIGHT}",
         "org.example:two:1.0 could not be fetched from Maven Central: is the network up? EXACTLYONCE_IVY_SETTINGS can name "
         "an ivysettings.xml for a mirror. Ivy's last lines:"),
    ],
    ids=["another content than the lock's", "not there"],
)  # fmt: skip
def test_what_cannot_be_had_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    file = lock(tmp_path, line)
    monkeypatch.setattr("sys.argv", ["jars", "--lock", str(file)])
    assert main() == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert next(said for said in printed.err.splitlines() if not said.startswith("  [")) == sentence
    assert list((tmp_path / "cache" / "exactlyonce" / "jars").iterdir()) == []


def test_without_java_it_says_which_one_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsUnavailable, match=r"No `java` on the PATH: install a Java runtime, version 17 or newer"):
        ensure_jars(lock(tmp_path, f"org.example:one:1.0 {RIGHT}"))


def test_an_image_says_where_its_jars_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXACTLYONCE_JARS", str(tmp_path / "jars"))
    assert ensure_jars() == tmp_path / "jars"
    with pytest.raises(JarsUnavailable, match="two"):
        ensure_jars(lock(tmp_path, f"org.example:two:1.0 {RIGHT}"))


def test_jars_can_be_put_into_a_folder_for_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, image = lock(tmp_path, f"org.example:one:1.0 {RIGHT}"), tmp_path / "image"
    monkeypatch.setattr("sys.argv", ["jars", "--lock", str(file), "--to", str(image)])
    assert main() == 0
    assert capsys.readouterr().out == f"{image}\n"
    assert [path.name for path in image.iterdir()] == ["one-1.0.jar"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"EXACTLYONCE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/exactlyonce"),
        ({"EXACTLYONCE_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/exactlyonce"),
        ({"EXACTLYONCE_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/exactlyonce"),
    ],
)
def test_the_cache_is_outside_of_any_source_tree(
    environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert cache_folder() == Path(folder)
