"""Parts are started in order and stopped in reverse, without exception."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import pytest

from orbitmq.common import service
from orbitmq.common.service import Services, StartFailedError


class Recorder:
    """Parts that record their starts and stops."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.services = Services()

    def part(
        self,
        name: str,
        *,
        start_error: BaseException | None = None,
        stop_error: Exception | None = None,
        is_async: bool = False,
    ) -> None:
        def note(event: str, error: BaseException | None) -> None:
            self.events.append(f"{event} {name}")
            if error is not None:
                raise error

        async def note_later(event: str, error: BaseException | None) -> None:
            await asyncio.sleep(0)
            note(event, error)

        run = note_later if is_async else note
        self.services.add(
            name, start=lambda: run("start", start_error), stop=lambda: run("stop", stop_error)
        )


def test_parts_start_in_order_and_stop_in_reverse() -> None:
    recorder = Recorder()
    recorder.part("a")
    recorder.part("b", is_async=True)
    recorder.services.add("only a name")

    async def life() -> None:
        await recorder.services.start()
        await recorder.services.stop()
        await recorder.services.stop()

    asyncio.run(life())
    assert recorder.events == ["start a", "start b", "stop b", "stop a"]


def test_a_kill_lets_go_of_parts_in_reverse_by_their_own_way_or_by_their_stop() -> None:
    recorder = Recorder()
    recorder.part("a")
    recorder.services.add(
        "b",
        stop=lambda: recorder.events.append("stop b"),
        kill=lambda: recorder.events.append("kill b"),
    )
    recorder.part("c", is_async=True)

    async def life() -> None:
        await recorder.services.start()
        await recorder.services.kill()
        await recorder.services.stop()

    asyncio.run(life())
    assert recorder.events == ["start a", "start c", "stop c", "kill b", "stop a"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(98, "Address already in use"),
            "b did not start: [Errno 98] Address already in use",
        ),
        (KeyError("x"), "b did not start: KeyError: 'x'"),
        (RuntimeError(), "b did not start: RuntimeError"),
    ],
)
def test_a_part_that_does_not_start_is_named_and_the_ones_before_it_are_stopped(
    error: Exception, message: str
) -> None:
    recorder = Recorder()
    recorder.part("a")
    recorder.part("b", start_error=error, is_async=True)
    recorder.part("c")
    with pytest.raises(StartFailedError) as caught:
        asyncio.run(recorder.services.start())
    assert str(caught.value) == message
    assert caught.value.__cause__ is error
    assert recorder.events == ["start a", "start b", "stop a"]


def test_a_stop_that_fails_is_logged_and_the_others_are_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    recorder.part("a", is_async=True)
    recorder.part("b", stop_error=ValueError("stuck"))

    async def life() -> None:
        await recorder.services.start()
        await recorder.services.stop()

    with pytest.raises(service.StopFailedError, match="b: ValueError: stuck"):
        asyncio.run(life())
    assert recorder.events[2:] == ["stop b", "stop a"]
    assert [record.getMessage() for record in caplog.records] == [
        "stop_failed part='b' reason=ValueError: stuck"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_with_a_clean_stop(number: signal.Signals) -> None:
    recorder = Recorder()
    recorder.part("a", is_async=True)
    handler = signal.getsignal(number)
    asyncio.run(
        service.run_until_signal(recorder.services, ready=lambda: os.kill(os.getpid(), number))
    )
    assert recorder.events == ["start a", "stop a"]
    assert signal.getsignal(number) == handler


def test_a_signal_during_the_start_stops_what_has_started() -> None:
    recorder = Recorder()
    recorder.part("a")

    async def slow() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    recorder.services.add("slow", start=slow)
    recorder.part("never")
    asyncio.run(service.run_until_signal(recorder.services))
    assert recorder.events == ["start a", "stop a"]


def test_the_file_limit_is_raised_to_what_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert service.raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
