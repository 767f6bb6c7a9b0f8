"""Tests that authentication errors name the access key and the options."""

from __future__ import annotations

import pytest

from orbitmq.access.credentials import Credentials
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.auth_errors import explain_auth_errors
from orbitmq.spark.pipeline.problems import is_source_error

KEYS = Credentials("me", "mine")


def told(remark: str, credentials: Credentials | None) -> str:
    with (
        pytest.raises(RequestRefusedError) as refused,
        explain_auth_errors(ClientSettings(name_servers="10.0.0.1:9876", credentials=credentials)),
    ):
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    return str(refused.value)


@pytest.mark.parametrize(
    "remark",
    [
        "check signature failed.",
        "User:me is not found.",
        "User:me is disabled.",
        "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=me",
    ],
)
def test_keys_that_are_refused_are_named_with_their_options(remark: str) -> None:
    assert (
        told(remark, KEYS)
        == f"the cluster of 10.0.0.1:9876 refuses accessKey me: {remark.rstrip('.')}; check the"
        f" options accessKey and secretKey"
    )


def test_a_request_without_keys_is_told_as_that() -> None:
    assert (
        told("username cannot be null.", None)
        == "the cluster of 10.0.0.1:9876 refuses unsigned requests: username cannot be"
        " null; check the options accessKey and secretKey"
    )


def test_other_refusals_stay_as_they_are() -> None:
    assert told("the broker is full", KEYS) == "the broker is full"


def test_what_a_source_says_is_not_told_of_a_sink() -> None:
    failed = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source"
        " perform"
    )
    assert is_source_error(
        Exception(f"{failed} latestOffset: orbitmq.common.errors.NotFoundError: no route")
    )
    assert not is_source_error(
        Exception(f"{failed} streamWriterCommit: orbitmq.common.errors.SendFailedError: no route")
    )
