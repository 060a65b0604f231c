"""Every command that a page or an example prints is one that the program takes: by name, by options and by arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from exactlyonce.api.resource import parse_stream
from exactlyonce.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("charts/**/*.md")),
    *sorted(ROOT.glob("examples/*.yaml")),
]
_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_A_LINE = re.compile(r"^\s*#?\s*\$?\s*(?:kubectl )?(exactlyonce [a-z].*)$", re.MULTILINE)
_INLINE = re.compile(r"`(?:kubectl )?(exactlyonce [a-z][^`\n]*)`")


def printed(page: Path) -> Iterator[str]:
    """Yield the commands of a page, without comments and what they are piped to; `<name>` and `…` stand for one word."""
    text = page.read_text()
    blocks = [text] if page.suffix == ".yaml" else _FENCED.findall(text)
    lines = [line for block in blocks for line in _A_LINE.findall(block.replace("\\\n", " "))]
    for found in [*lines, *([] if page.suffix == ".yaml" else _INLINE.findall(text))]:
        words = re.split(r"\s#\s|\s{2,}#|\s[|/&]+\s", found)[0]
        yield words.replace("<", "").replace(">", "").replace("…", "WORD").strip()


COMMANDS = sorted({(command, str(page.relative_to(ROOT))) for page in PAGES for command in printed(page)})


@pytest.mark.parametrize(("command", "page"), COMMANDS)
def test_a_printed_command_is_taken(command: str, page: str) -> None:
    _, name, *given = shlex.split(command)
    # With the settings of main: a command keeps the options for help that it had in its first context, and tests share it.
    of_main = click.Context(main, **main.context_settings)
    found = main.get_command(of_main, name)
    assert found is not None, f"{page} names {command}"
    try:
        found.make_context(name, list(given), parent=of_main)
    except click.MissingParameter:
        assert not [word for word in given if not word.startswith("-")], (
            "named without what it is given, as in a sentence"
        )


def test_pages_print_commands() -> None:
    names = {command.split()[1] for command, _ in COMMANDS}
    assert {"run", "validate", "explain", "offsets", "checkpoint", "inspect", "status", "logs"} <= names


BLOCKS = [
    (str(page.relative_to(ROOT)), block)
    for page in PAGES
    if page.suffix == ".md"
    for block in re.findall(r"```ya?ml\n(.*?)```", page.read_text(), re.DOTALL)
    if "kind: ExactlyOnceStream" in block
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_printed_stream_is_valid(page: str, block: str) -> None:
    parse_stream(yaml.safe_load(block), page)


@pytest.mark.parametrize("page", [page for page in PAGES if page.suffix == ".md"], ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []
