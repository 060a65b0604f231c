"""The command line without any server: help, exit statuses, and one sentence for each thing that is wrong."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce import __version__
from exactlyonce.cli.commands import Taught
from exactlyonce.cli.main import main
from tests.resource_documents import document

COMMANDS = sorted(main.commands)
OF_A_FILE = sorted(
    name for name, it in main.commands.items() if any(part.name in ("file", "target") for part in it.params)
)
VALID = {"spec.checkpoint": {"local": {"path": "/checkpoints/orders"}}}


def run(*arguments: object) -> Result:
    """Run the command line as a user does; an exception that is no exit is the product's failure."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def written(folder: Path, *documents: Any) -> Path:
    """Return a file with these documents."""
    file = folder / "streams.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


def test_there_are_these_commands() -> None:
    assert COMMANDS == [
        "backfills", "checkpoint", "completion", "dead-letters", "explain", "failures", "files", "init", "inspect",
        "logs", "offsets", "recover", "replay", "restart", "resume", "run", "settle-loads", "status", "suspend", "validate",
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_says_what_a_command_does_and_what_its_exit_status_means(command: list[str], option: str) -> None:
    result = run(*command, option)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.output.startswith("Usage: ")
    words = " ".join(result.output.split())
    if command in (["run"], ["explain"], ["status"], ["validate"], ["suspend"], ["resume"], ["restart"], ["failures"],
        ["dead-letters"], ["replay"]):  # fmt: skip
        assert "Exit status" in words
    for name in COMMANDS if not command else []:
        assert re.search(rf"\b{name} +\w", words), "each command has a line of its own"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_that_can_be_typed(command: str) -> None:
    taught = main.commands[command]
    assert isinstance(taught, Taught)
    examples = run(command, "--help").output.partition("Examples:\n")[2]
    for line, words in taught.examples:
        assert re.search(rf"main {re.escape(line)}\s+{re.escape(words.split()[0])}", examples), line
        name, *arguments = shlex.split(line)
        assert name == command
        with taught.make_context(command, arguments):
            pass  # it is made without an error of use


def test_help_as_a_plugin_of_kubectl_shows_what_is_typed_there() -> None:
    shown = CliRunner().invoke(main, ["suspend", "--help"], prog_name="kubectl exactlyonce").output
    assert "kubectl exactlyonce suspend orders -n shop --wait" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.name


def test_the_version_is_the_packages() -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"exactlyonce, version {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: "),
        (["explode"], "No such command 'explode'"),
        (["validate"], "Missing argument 'FILE'"),
        (["validate", "a.yaml", "b.yaml"], "unexpected extra argument"),
        (["explain"], "Missing argument 'FILE|NAME'"),
        (["explain", "a.yaml", "-o", "xml"], "'xml' is not one of 'text', 'json'"),
        (["run", "a.yaml", "--unresponsive", "wait"], "'wait' is not one of 'kill', 'abandon'"),
        (["run", "a.yaml", "--unresponsive-after", "soon"], "'soon' is not a valid float"),
    ],
)
def test_a_command_that_is_written_wrong_has_status_2_and_says_how_to_write_it(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "Usage: " in result.stderr


def test_valid_streams_are_named_and_other_documents_passed_over(tmp_path: Path) -> None:
    file = written(tmp_path, {"kind": "Secret"}, document(VALID), None, ["a"], document(VALID, name="sales"))
    result = run("validate", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.output == "".join(
        f"{file}: ExactlyOnceStream shop/{name} is valid.\n" for name in ("orders", "sales")
    )  # fmt: skip


@pytest.mark.parametrize(
    "example", sorted((Path(__file__).parents[2] / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_each_example_is_valid(example: Path) -> None:
    result = run("validate", example)
    assert result.exit_code == 0, result.output


def unreadable(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield files that hold no stream, and what is said of each after its name."""
    yield folder / "nowhere.yaml", ": the file cannot be read (No such file or directory); name one that can."
    yield folder, ": the file cannot be read (Is a directory); name one that can."
    for name, content, said in (
        ("binary", b"\xff\xfe\x00", ": the file is not UTF-8 text; name a YAML file."),
        ("braces", b"kind: {", ":1: this is not YAML (expected the node content, but found '<stream end>'); correct it."),
        ("object", b"kind: !!python/object:os.system {}", "; correct it."),
        ("empty", b"", ": there is no ExactlyOnceStream in this file; write one, as in examples/orders.yaml."),
        ("a-list", b"- kind: ExactlyOnceStream", ": there is no ExactlyOnceStream in this file; write one, as in "
         "examples/orders.yaml."),
        ("v1", b"kind: ExactlyOnceStream\napiVersion: v1", ": this is ExactlyOnceStream of v1; write kind: "
         "ExactlyOnceStream and apiVersion: exactlyonce.dev/v1alpha1."),
    ):  # fmt: skip
        file = folder / f"{name}.yaml"
        file.write_bytes(content)
        yield file, said


@pytest.mark.parametrize("command", OF_A_FILE)
def test_a_file_that_holds_no_stream_is_one_sentence_and_status_1(tmp_path: Path, command: str) -> None:
    state = [] if command == "validate" else ["--state", tmp_path / "state"]
    for file, said in unreadable(tmp_path):
        result = run(command, file, *state)
        assert (result.exit_code, result.stdout) == (1, "")
        (sentence,) = result.stderr.splitlines()
        assert sentence.startswith(f"{file}:")
        assert sentence.endswith(said)
    assert not (tmp_path / "state").exists(), "nothing was written"


@pytest.mark.parametrize("command", ["validate", "explain", "run"])
def test_a_ledger_in_dynamodb_is_refused_in_one_sentence_and_nothing_is_written(tmp_path: Path, command: str) -> None:
    ledger = {"dynamoDb": {"table": "ledgers", "region": "eu-central-1", "partitionKey": "orders"}}
    file = written(tmp_path, document({**VALID, "spec.sink": {"files": {"path": "/out"}}, "spec.ledger": ledger}))
    result = run(command, file, *([] if command == "validate" else ["--state", tmp_path / "state"]))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        f"{file}: spec.ledger: dynamoDb was removed: no ledger is kept in DynamoDB; write objectLog with the location of an "
        "empty folder of this stream alone, on S3 or on a disk, or leave ledger out to keep the object log beside the "
        "checkpoint."
    ]
    assert list(tmp_path.iterdir()) == [file]


def test_everything_that_is_wrong_has_a_sentence_with_file_path_and_what_to_do(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        document({"spec.delivery": "Sometimes", "spec.drivers": {}, "spec.driver": {"memory": "2g"}}),
    )
    result = run("validate", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert sorted(result.stderr.splitlines()) == [
        f"{file}: spec.delivery: 'Sometimes' is not one of 'ExactlyOnce', 'AtLeastOnce' or 'AtMostOnce'.",
        f"{file}: spec.driver.memory: '2g' will not do; write a quantity in Mi or Gi, as 512Mi or 2Gi.",
        f"{file}: spec.drivers: there is no such field; remove it or correct its name.",
    ]


@pytest.mark.parametrize("command", ["explain", "offsets", "run"])
@pytest.mark.parametrize("options", [[], ["--name", "refunds"]], ids=["no name", "another name"])
def test_one_of_several_streams_has_to_be_chosen(tmp_path: Path, command: str, options: list[str]) -> None:
    file = written(tmp_path, document(VALID), document(VALID, name="sales"))
    result = run(command, file, *options, "--state", tmp_path / "state")
    assert (result.exit_code, result.stdout) == (1, "")
    missing = "there is no stream refunds in it; " if options else ""
    assert result.stderr == f"{file}: {missing}it holds orders, sales; choose one with --name.\n"


@pytest.mark.parametrize("command", ["explain", "offsets", "run"])
def test_a_secret_that_is_not_there_is_one_sentence_and_status_1(tmp_path: Path, command: str) -> None:
    file, secrets = written(tmp_path, document(VALID), document(VALID, name="sales")), tmp_path / "secrets"
    result = run(command, file, "--name", "sales", "--state", tmp_path / "state", "--secrets", secrets)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Secret warehouse is not there: make the folder {secrets / 'warehouse'} with one file for each key, such as "
        f"{secrets / 'warehouse' / 'password'}.\n"
    )
    assert not (tmp_path / "state").exists()


def test_a_stream_that_is_suspended_is_not_run_and_says_so(tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "warehouse"
    secret.mkdir(parents=True)
    for key, value in {"host": "127.0.0.1", "port": "1", "dbname": "shop", "user": "me", "password": "x"}.items():
        (secret / key).write_text(value)
    file, state = written(tmp_path, document({**VALID, "spec.suspend": True})), tmp_path / "state"
    result = run("run", file, "--state", state, "--secrets", secret.parent)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Suspended: The stream is suspended, as spec.suspend says; set it to false to run it." in result.output
    (status,) = state.glob("*/status.json")
    assert json.loads(status.read_text())["status"]["phase"] == "Suspended"


@pytest.mark.parametrize("command", ["explain", "offsets"])
@pytest.mark.parametrize("options", [[], ["-o", "json"]], ids=["text", "json"])
def test_a_ledger_that_does_not_answer_is_one_sentence_without_the_password(
    tmp_path: Path, command: str, options: list[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = taken.getsockname()[1]
        secret = tmp_path / "secrets" / "warehouse"
        secret.mkdir(parents=True)
        for key, value in {
            "host": "127.0.0.1", "port": port, "dbname": "shop", "user": "me", "password": "open sesame",
        }.items():  # fmt: skip
            (secret / key).write_text(f"{value}\n")
        file = written(tmp_path, document(VALID))
        result = run(command, file, "--state", tmp_path / "state", "--secrets", secret.parent, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    (sentence,) = result.stderr.splitlines()
    assert f"me@127.0.0.1:{port}/shop" in sentence
    assert "refused" in sentence
    assert "open sesame" not in sentence
    assert not (tmp_path / "state").exists(), "a look leaves nothing behind"
