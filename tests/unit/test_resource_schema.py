"""The schema that the models make, and the same cases through `exactlyonce validate`'s own check as through an API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from exactlyonce.api import refused_conf
from exactlyonce.api.immutable import update_rules
from exactlyonce.api.resource import NAME_MAX_LENGTH, ResourceInvalid, parse_stream, read_streams
from exactlyonce.api.status import Phase
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.schema.constraints import VALIDATIONS
from scripts import generate_crd
from tests.resource_cases import refused
from tests.resource_documents import FULL, NOT_IN_FULL, VALID, Refused, document

SCHEMA: dict[str, Any] = generate_crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]


def every(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and all schemas in it, each with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from every(field, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from every(schema[part], f"{path}.{part}")


def defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """Return a value with the schema's defaults filled in, as the API server does."""
    if isinstance(value, dict):
        made = {key: item for key, item in value.items() if item is not None}
        for name, field in schema.get("properties", {}).items():
            if name not in made and "default" in field:
                made[name] = field["default"]
        fields = schema.get("properties", {})
        return {key: defaulted(item, fields.get(key, {})) for key, item in made.items()}
    return value


def test_the_definition_and_the_reference_page_are_what_the_models_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_crd.CRD.read_text() == generate_crd.crd_text(), "python -m scripts.generate_crd"
    head = generate_crd.PAGE.read_text().partition(generate_crd.MARK)[0]
    assert generate_crd.PAGE.read_text() == generate_crd.page_text(head), "python -m scripts.generate_crd"


def test_a_definition_that_was_edited_by_hand_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = tmp_path / "crd.yaml"
    edited.write_text(generate_crd.crd_text().replace("maximum: 100\n", "maximum: 101\n"))
    monkeypatch.setattr(generate_crd, "CRD", edited)
    monkeypatch.setattr("scripts.generated.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate_crd.py", "--check"])
    assert generate_crd.main() == 1
    assert "crd.yaml" in capsys.readouterr().out


def test_every_field_has_a_description_and_one_type() -> None:
    for path, field in [*every(SPEC, "spec"), *every(STATUS, "status")]:
        assert field["type"] in {"object", "array", "string", "integer", "boolean"}, path
        if not path.endswith((".items", ".additionalProperties")):
            assert field["description"].endswith("."), path
        assert not {"$ref", "anyOf", "oneOf", "allOf", "nullable", "x-kubernetes-int-or-string"} & set(field), path


def test_everything_in_the_spec_is_bounded_so_that_its_rules_have_a_cost() -> None:
    for path, field in every(SPEC, "spec"):
        bounds = {
            "string": {"maxLength"} if "enum" not in field and "format" not in field else set(),
            "integer": {"minimum", "maximum"},
            "array": {"maxItems"},
            "object": {"maxProperties"} if "additionalProperties" in field else set(),
        }
        assert bounds.get(field["type"], set()) <= set(field), path


def test_no_part_of_a_status_is_filled_in_or_bounded() -> None:
    """A status that is refused would stop the operator: its write comes before each act."""
    status = {key: value for key, value in STATUS.items() if key != "default"}
    for path, field in every(status, "status"):
        limits = {"default", "maxLength", "maxItems", "maxProperties", "minimum", "maximum", "minLength", VALIDATIONS}
        assert not limits & set(field), path


def test_the_status_knows_every_phase() -> None:
    assert STATUS["properties"]["phase"]["enum"] == [str(phase) for phase in Phase]


@pytest.mark.parametrize(
    "path", [path for _, _, path, _, _ in generate_crd.COLUMNS if path.startswith(".status") and "[" not in path]
)
def test_every_column_shows_a_field_that_exists(path: str) -> None:
    found = {place for place, _ in every(STATUS, ".status")}
    assert path in found


def test_the_name_of_a_driver_of_the_longest_stream_fits_a_label() -> None:
    assert NAME_MAX_LENGTH + len("-driver-999999") == 63


@pytest.mark.parametrize("name", VALID)
def test_the_schemas_defaults_are_those_of_the_models(name: str) -> None:
    resource = document(VALID[name])
    filled = {**resource, "spec": defaulted(resource["spec"], SPEC)}
    assert parse_stream(filled, "the test") == parse_stream(resource, "the test")


def test_a_resource_comes_back_as_it_was_written() -> None:
    stream = parse_stream(FULL, "the test")
    without_merge = FULL["spec"]["sink"]["postgres"] | {"merge": []}
    assert stream.spec.to_document() == {**FULL["spec"], "sink": {"postgres": without_merge}}
    assert set(FULL["spec"]) == set(SPEC["properties"]) - NOT_IN_FULL, "FULL has every field of the spec but those"


@pytest.mark.parametrize("case", refused(), ids=lambda case: case.name)
def test_an_invalid_resource_is_refused_with_a_sentence(case: Refused) -> None:
    with pytest.raises(ResourceInvalid) as caught:
        parse_stream(document(case.changes), "the file")
    (sentence,) = caught.value.problems
    assert case.sentence in sentence
    assert case.at in sentence
    assert sentence.startswith("the file: ")
    assert sentence.endswith(".")
    assert "canary" not in sentence, "what may be a credential is not shown"


def test_every_rule_of_the_schema_is_broken_by_a_case() -> None:
    told = [case.sentence for case in refused()]
    rules = {rule["message"] for _, field in every(SCHEMA, "") for rule in field.get(VALIDATIONS, [])}
    # Those of changes compare two versions: tests/cluster/test_changed_resources.py.
    rules -= {rule["message"] for rule in update_rules()}
    missing = {rule for rule in rules if not any(sentence in rule or rule in sentence for sentence in told)}
    assert missing == set()


def test_every_field_that_says_where_a_checkpoint_is_changes_only_while_the_stream_rests() -> None:
    """A login says who reads it; each other field moves it, one that is added later too."""
    of_checkpoint = [rule for rule in update_rules() if rule["fieldPath"] == ".spec.checkpoint"]
    (rule,) = [rule for rule in of_checkpoint if "can be changed only while the stream is suspended" in rule["message"]]
    places = SPEC["properties"]["checkpoint"]["properties"]
    fields = [f"{place}.{name}" for place in places for name in places[place]["properties"] if name != "secretRef"]
    assert [
        name for name in fields if f"self.spec.checkpoint.{name} == oldSelf.spec.checkpoint.{name}" not in rule["rule"]
    ] == []
    assert "secretRef" not in rule["rule"]


@pytest.mark.parametrize("key", refused_conf.WHEN_TRUE)
def test_a_setting_that_is_refused_when_true_may_be_false(key: str) -> None:
    assert parse_stream(document({"spec.sparkConf": {key: " False"}}), "the test").spec.spark_conf == {key: " False"}


def test_a_number_with_a_point_and_nothing_behind_it_is_whole_as_kubectl_sends_it() -> None:
    changes = {
        "spec.driver.cores": 3.0,
        "spec.source.kafka": {"bootstrapServers": "k:1", "assign": [{"topic": "a", "partitions": [1.0]}]},
    }
    spec = parse_stream(document(changes), "the test").spec
    assert (spec.driver.cores, spec.to_document()["source"]["kafka"]["assign"][0]["partitions"]) == (3, [1])


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ResourceInvalid) as caught:
        parse_stream(
            document(
                {
                    "spec.driver.memory": "2g",
                    "spec.sparkConf": {"spark.master": "x", "spark.speculation": "true"},
                    "spec.transform": {},
                }
            ),
            "the file",
        )
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("streamId: a\n  streamId: b", "streams.yaml:6: this is not YAML (the key streamId stands twice in one place)"),
        ("suspend: [", "this is not YAML"),
        ("sparkConf: {spark.x: y}", "spec.sparkConf.spark.x: should be a valid string (it is True)"),
    ],
)
def test_a_file_that_kubectl_would_refuse_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "streams.yaml"
    head = "apiVersion: exactlyonce.dev/v1alpha1\nkind: ExactlyOnceStream\nmetadata: {name: a}\nspec:\n  "
    file.write_text(f"{head}{text}\n")
    with pytest.raises(ResourceInvalid) as caught:
        read_streams(file)
    assert sentence in str(caught.value)


def test_a_moment_without_quotes_is_taken_as_the_text_that_it_is(tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    resource = document({"spec.source.kafka.start": {"from": "Timestamp", "timestamp": "2026-01-31T00:00:00Z"}})
    text = yaml.safe_dump(resource).replace("'2026-01-31T00:00:00Z'", "2026-01-31T00:00:00Z")
    assert "timestamp: 2026" in text
    file.write_text(text)
    (stream,) = read_streams(file)
    assert cast("KafkaSource", stream.spec.source.spec).start.moment.isoformat() == "2026-01-31T00:00:00+00:00"
