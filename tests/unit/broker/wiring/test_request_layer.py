"""A whole broker over its socket: what belongs together, and what it does not serve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.process import create_request, send_request
from support.broker.running import broker, request
from support.remoting.peers import run

NOT_SERVED = (
    RequestCode.QUERY_ASSIGNMENT,
    *(
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
    ),
    *(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED),
    *(code for code in RequestCode if "COLD_DATA" in code.name),
    *(code for code in RequestCode if code >= RequestCode.POP_MESSAGE),
)


def test_what_is_not_served_is_refused_by_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            for code in NOT_SERVED:
                answer = await ask(request(code, {}, topic="T", consumerGroup="g"))
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code
                assert (
                    answer.remark
                    == f" request type {code} not supported: this broker does not serve {code.name}"
                )
            answer = await ask(request(99_999))
            assert (answer.code, answer.remark) == (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                " request type 99999 not supported",
            )

    run(scenario)


@pytest.mark.parametrize("goes", [True, False])
def test_figures_of_a_topic_go_with_it_if_the_configuration_says_so(
    tmp_path: Path, goes: bool
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, autoDeleteUnusedStats=str(goes).lower()) as ask:
            await ask(create_request("T"))
            assert (await ask(send_request("T", b"x"))).code == 0
            stats = request(
                RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T"
            )
            assert (await ask(stats)).code == 0
            assert (await ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))).code == 0
            assert (await ask(stats)).code == (ResponseCode.SYSTEM_ERROR if goes else 0)

    run(scenario)


def test_modes_that_were_set_outlive_a_restart(tmp_path: Path) -> None:
    mode = {"topic": "TBW102", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 2}

    async def scenario() -> None:
        async with broker(tmp_path) as ask:
            assert (await ask(request(RequestCode.SET_MESSAGE_REQUEST_MODE, mode))).code == 0
            assert (
                await ask(request(RequestCode.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="1"))
            ).code == 0
        async with broker(tmp_path) as ask:
            told = await ask(request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
            assert json.loads(told.body or b"") == {
                "messageRequestModeMap": {"TBW102": {"g": mode}}
            }

    run(scenario)
    assert "dataReadAheadEnable=false" in (tmp_path / "config" / "broker.properties").read_text()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_log_reads_ahead_or_not_as_is_said(tmp_path: Path, wanted: bool) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, dataReadAheadEnable=str(wanted).lower()) as ask:
            assert (await ask(send_request("T", b"x"))).code == 0
            (file,) = ask.components.store.log.files.files
            assert file._reads_ahead is wanted
            await ask.update(dataReadAheadEnable=str(not wanted).lower())
            assert file._reads_ahead is not wanted

    run(scenario)
