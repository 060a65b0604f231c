"""Stores in a bucket of moto's S3, and users of it with rights of their own."""

from __future__ import annotations

import json
from typing import Any

from exactlyonce.checkpoint.s3_clients import S3Service
from testbed.s3 import S3

BUCKET = "lake"
"""The bucket of the shared S3 service, in which each test has folders of its own; and of services that a test starts."""


def service_of(s3: S3, **login: str) -> S3Service:
    return S3Service.of(s3.endpoint, None, path_style=True, secret=login or s3.secret())


def login_of(service: S3, user: str, statements: list[dict[str, Any]]) -> dict[str, str]:
    """Make a user with these rights and return the keys of its secret."""
    iam = service.client("iam")
    iam.create_user(UserName=user)
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_user_policy(UserName=user, PolicyName="rights", PolicyDocument=document)
    made = iam.create_access_key(UserName=user)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}
