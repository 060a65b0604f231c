"""`exactlyonce convert`: a file of the form that earlier versions read means the same afterwards, and keeps its comments."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.api.former_form import NotRewritten, rewritten, to_current_form
from exactlyonce.api.resource import read_streams
from exactlyonce.cli.main import main
from exactlyonce.schema.yaml_loader import KubectlLoader
from tests.resource_documents import VALID, document

HEAD = """\
apiVersion: exactlyonce.dev/v1alpha1
kind: ExactlyOnceStream
metadata: {name: orders}
spec:
  source: {kafka: {bootstrapServers: "k:1", topics: [orders]}, format: {schema: id BIGINT}}
"""
FORMER = f"""\
# The orders of the shop.
{HEAD}\
  sink:
    postgres:
      secretRef: {{name: warehouse}} # its login
      table: public.orders
      write: Merge
      keys: [id]
      merge: # by column
        total: Sum # of all
        "yes": Max
      commit: Batch
  # Spark's logs
  checkpoint:
    location: "s3a://lake/checkpoints/orders" # ours alone
    secretRef: {{name: lake}}

    endpoint: https://s3.example:9000
  driver: {{cores: 2, memory: 1g, memoryOverhead: "900m"}} # small
  executor:
    memory: 2g
---
kind: ConfigMap
data: {{checkpoint: "location: /c", memory: 1g}}
"""
CURRENT = f"""\
# The orders of the shop.
{HEAD}\
  sink:
    postgres:
      secretRef: {{name: warehouse}} # its login
      table: public.orders
      write: Merge
      keys: [id]
      merge: # by column
        # of all
        - column: total
          combine: Sum
        - column: 'yes'
          combine: Max
      commit: Batch
  # Spark's logs
  checkpoint:
    # ours alone
    s3:
      location: s3a://lake/checkpoints/orders
      secretRef:
        name: lake
      endpoint: https://s3.example:9000
  driver: {{cores: 2, memory: 1Gi, memoryOverhead: 900Mi}} # small
  executor:
    memory: 2Gi
---
kind: ConfigMap
data: {{checkpoint: "location: /c", memory: 1g}}
"""
CHECKPOINTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a folder": ({"location": "/c/orders", "pathStyle": False}, {"local": {"path": "/c/orders"}}),
    "a folder as Hadoop writes it": ({"location": "file:///c"}, {"local": {"path": "file:///c"}}),
    "a bucket": (
        {"location": "s3a://lake/orders", "region": "eu-central-1", "endpoint": None},
        {"s3": {"location": "s3a://lake/orders", "region": "eu-central-1"}},
    ),
    "a claim": (
        {"location": "/c/orders", "persistentVolumeClaim": {"claimName": "lake", "mountPath": "/c"}},
        {"volume": {"claimName": "lake", "path": "/c/orders", "mountPath": "/c"}},
    ),
}


def sink(merge: str) -> str:
    return f"{HEAD}  checkpoint: {{local: {{path: /c}}}}\n  sink: {{postgres: {{secretRef: {{name: w}}, table: t, {merge}}}}}\n"


def convert(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["convert", *arguments])


def test_a_file_is_rewritten_where_the_form_has_changed_and_keeps_all_else_with_every_comment() -> None:
    made = rewritten(FORMER)
    assert (made.text, made.streams) == (CURRENT, 1)
    assert made.text.count("#") == FORMER.count("#")


def test_what_is_rewritten_is_valid_and_the_former_form_is_not(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(CURRENT)
    (stream,) = read_streams(file)
    assert stream.spec.checkpoint.location == "s3a://lake/checkpoints/orders"
    file.write_text(FORMER)
    refused = CliRunner().invoke(main, ["validate", str(file)])
    assert refused.exit_code == 1
    assert refused.output.count("exactlyonce convert FILE rewrites") == refused.output.count("\n") == 5


def test_a_file_in_the_current_form_stays_as_it_is() -> None:
    made = rewritten(CURRENT)
    assert (made.text, made.streams) == (CURRENT, 0)


@pytest.mark.parametrize("name", VALID)
def test_a_resource_that_is_valid_is_in_the_current_form(name: str) -> None:
    made = document(VALID[name])
    assert to_current_form(made) == made


@pytest.mark.parametrize(("former", "current"), CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
@pytest.mark.parametrize("style", [True, False], ids=["in brackets", "by lines"])
def test_a_checkpoint_of_each_kind_is_rewritten_in_the_style_that_it_has(
    former: dict[str, Any], current: dict[str, Any], style: bool
) -> None:
    given = document({"spec.checkpoint": former})
    made = rewritten(yaml.safe_dump(given, default_flow_style=style))
    assert yaml.safe_load(made.text) == document({"spec.checkpoint": current})


def test_comments_in_brackets_go_above_and_a_number_sign_in_a_text_is_none() -> None:
    text = sink('write: Merge, keys: [id], merge: {\n      "a # b": Sum, # first\n      b: Max}')
    made = rewritten(text)
    (read,) = yaml.load_all(made.text, KubectlLoader)
    assert [merged["column"] for merged in read["spec"]["sink"]["postgres"]["merge"]] == ["a # b", "b"]
    assert made.text.count("# first") == 1
    assert made.text.index("# first") < made.text.index("sink:")


def test_what_an_anchor_shares_is_left_to_a_person() -> None:
    text = f"{HEAD}  driver: &size\n    memory: 1g\n  executor: *size\n"
    text += "  transform: {sql: &query SELECT 1}\n  checkpoint: {local: {path: /c}}\n"
    assert rewritten(text).text.count("1Gi") == 1, "one edit serves both"
    shared = f"{HEAD}  checkpoint: &place\n    location: /c\n  sparkConf: {{<<: *place}}\n"
    with pytest.raises(NotRewritten, match=r"anchors, merge keys or tags; rewrite spec\.checkpoint"):
        rewritten(shared)


def test_the_ends_of_lines_stay_what_they_are() -> None:
    text = sink("write: Append").replace("checkpoint: {local: {path: /c}}", "checkpoint: {location: /c}")
    made = rewritten(text.replace("\n", "\r\n")).text
    assert made.count("\r\n") == made.count("\n") == text.count("\n")


def test_the_command_prints_the_text_and_with_write_replaces_the_file_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FORMER)
    file.chmod(0o640)
    assert (convert(str(file)).output, file.read_text()) == (CURRENT, FORMER)
    done = convert(str(file), "--write")
    assert (done.exit_code, done.output, file.read_text()) == (0, f"{file}: 1 stream rewritten.\n", CURRENT)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert convert(str(file), "-w").output == f"{file}: nothing to rewrite.\n"
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("suspend: [", "this is not YAML"),
        ("kind: ConfigMap", "there is no ExactlyOnceStream"),
        (f"{HEAD}  checkpoint: &c {{location: /c}}\n  sparkConf: *c\n", "by hand"),
    ],
)
def test_a_file_that_cannot_be_rewritten_stays_as_it_is_and_one_sentence_says_why(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    done = convert(str(file), "--write")
    assert (done.exit_code, file.read_text()) == (1, text)
    assert sentence in done.output
    assert done.output.startswith(str(file))
    assert done.output.count("\n") == 1
    missing = convert(str(tmp_path / "missing.yaml"))
    assert "the file cannot be read" in missing.output
