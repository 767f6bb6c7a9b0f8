"""The code tables match the golden frames."""

from __future__ import annotations

from orbitmq.protocol import frame
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from support.common import golden_data


def test_every_golden_request_code_has_the_name_that_its_file_says() -> None:
    for golden in golden_data.frames():
        assert (
            RequestCode(golden.request_code).name == golden.name.rpartition("/")[2].split("-")[1]
        ), golden


def test_every_golden_answer_code_is_known() -> None:
    codes = {
        frame.decode_one(golden.frame).code
        for golden in golden_data.frames()
        if not golden.is_request
    }
    assert codes <= {int(code) for code in ResponseCode}
    assert {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND} <= codes


def test_no_request_code_has_two_names() -> None:
    assert len(RequestCode.__members__) == len(RequestCode) == 170


def test_the_names_that_4_9_has_for_three_answers_are_aliases() -> None:
    aliases = {
        name: code.name for name, code in ResponseCode.__members__.items() if name != code.name
    }
    assert aliases == {
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED": "POLLING_FULL",
        "DELETE_ACL_CONFIG_FAILED": "POLLING_TIMEOUT",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED": "BROKER_NOT_EXIST",
    }


def test_languages_are_numbered_without_gaps() -> None:
    assert [int(language) for language in LanguageCode] == list(range(14))
