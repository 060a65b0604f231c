"""JSON that a JSON Schema has to find valid as well; its references stay within it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import jsonschema_rs
import msgspec
import numpy as np

from exactlyonce.api.columns import Column
from exactlyonce.errors import Refused
from exactlyonce_spark.decode.arrow import Array, pa
from exactlyonce_spark.decode.decoder import Chunk, Decoder
from exactlyonce_spark.decode.json_format import JsonDecoder
from exactlyonce_spark.decode.json_text import BYTE_ORDER_MARK
from exactlyonce_spark.decode.malformed import Malformed, shown
from exactlyonce_spark.decode.rules import Rules

MOST_BYTES = 1 << 20
"""Bytes of a schema; one of 10 MB is a mistake."""


class JsonSchemaUnusable(Refused):
    """A schema is no JSON Schema, or refers to what is not in it."""


class JsonSchemaDecoder(Decoder):
    """Decodes records as JSON, and checks each of them against the schema."""

    def __init__(self, columns: tuple[Column, ...], rules: Rules, schema: str) -> None:
        super().__init__(columns)
        self._json = JsonDecoder(columns, rules)
        self._validator = _validator(schema)

    def record(self, value: bytes) -> Mapping[str, object]:
        """Return the columns of one record."""
        found = self._json.record(value)
        self._require_valid(value)
        return found

    def chunk(self, values: Array) -> Chunk:
        """Read many records; those that are not valid are doubtful."""
        chunk = self._json.chunk(values)
        given = values.take(pa.array(chunk.places)).to_pylist()
        valid = np.fromiter((self._is_valid(value) for value in given), np.bool_, len(given))
        if valid.all():
            return chunk
        doubtful = np.concatenate([np.array(chunk.doubtful, np.int64), chunk.places[~valid]])
        return Chunk(chunk.rows.take(pa.array(np.flatnonzero(valid))), chunk.places[valid], np.sort(doubtful).tolist())

    def _is_valid(self, value: bytes) -> bool:
        try:
            return self._validator.is_valid(msgspec.json.decode(value))
        except (msgspec.DecodeError, RecursionError, ValueError):
            return False

    def _require_valid(self, value: bytes) -> None:
        try:
            document = msgspec.json.decode(value.removeprefix(BYTE_ORDER_MARK))
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as problem:
            place = ".".join(str(it) for it in problem.instance_path) or "the record"
            raise Malformed(f"not valid by the JSON Schema: {place}: {shown(problem.message)}") from None
        except (msgspec.DecodeError, RecursionError, ValueError) as problem:
            raise Malformed(f"the JSON Schema cannot be checked: {problem}") from None


def _validator(schema: str) -> jsonschema_rs.Validator:
    if len(schema.encode()) > MOST_BYTES:
        raise JsonSchemaUnusable(f"the JSON Schema has more than {MOST_BYTES} bytes.")
    try:
        return jsonschema_rs.validator_for(json.loads(schema), offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError) as problem:
        said = str(problem).strip().splitlines()[0]
        raise JsonSchemaUnusable(f"the JSON Schema is unusable: {said}.") from problem
