"""Keys that servers refuse: the sentence says which, and where they come from."""

from __future__ import annotations

import pytest

from orbitmq.client.credentials import Credentials
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.pipeline.problems import is_of_source
from orbitmq.spark.refused_keys import told_of_keys

KEYS = Credentials("me", "mine")


def told(remark: str, credentials: Credentials | None) -> str:
    with pytest.raises(RequestRefused) as refused, told_of_keys(ClientSettings(name_servers="10.0.0.1:9876", credentials=credentials)):
        raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
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
    assert told(remark, KEYS) == (
        f"the cluster of 10.0.0.1:9876 refuses accessKey me: {remark.rstrip('.')}; see the options accessKey and secretKey"
    )


def test_a_request_without_keys_is_told_as_that() -> None:
    assert told("username cannot be null.", None) == (
        "the cluster of 10.0.0.1:9876 refuses requests that are not signed: username cannot be null; "
        "see the options accessKey and secretKey"
    )


def test_other_refusals_stay_as_they_are() -> None:
    assert told("the broker is full", KEYS) == "the broker is full"


def test_what_a_source_says_is_not_told_of_a_sink() -> None:
    failed = "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform"
    assert is_of_source(Exception(f"{failed} latestOffset: orbitmq.common.errors.NotFound: no route"))
    assert not is_of_source(Exception(f"{failed} streamWriterCommit: orbitmq.common.errors.SendFailed: no route"))
