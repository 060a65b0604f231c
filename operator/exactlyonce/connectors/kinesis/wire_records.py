"""The records of GetRecords as they are on the wire: the parser of the AWS library takes longer than all else of a read.

It walks each field of each record by the description of the service, and makes each time a datetime in this machine's zone.
Whatever else is in an answer, and every answer that is an error, it still parses itself.
"""

from __future__ import annotations

import json
from typing import Any

_OK = 200


def leave_records_as_they_are(client: Any) -> Any:
    """Have a client of boto3 give the records of GetRecords as the parsed JSON of the answer; return the client."""
    client.meta.events.register("before-parse.kinesis.GetRecords", _set_aside)
    return client


def _set_aside(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Take the records out of what botocore is going to parse. An answer of another shape is left to it, and it says so."""
    if response_dict["status_code"] != _OK:
        return
    try:
        answer = json.loads(response_dict["body"])
    except ValueError:
        return
    if isinstance(answer, dict) and isinstance(answer.get("Records"), list):
        customized_response_dict["Records"] = answer.pop("Records")
        response_dict["body"] = json.dumps(answer).encode()
