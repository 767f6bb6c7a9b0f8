"""Water marks: the peak of each second, and when one is logged."""

from __future__ import annotations

import pytest

from orbitmq.broker.observability.watermarks import Queue, WaterMark, WaterMarks


class Marks:
    """A send queue whose length the test sets, with limits of 100 requests and 200 ms, and a pull
    queue without limits.
    """

    def __init__(self) -> None:
        self.waiting = WaterMark(0, 0)
        self.now_ms = 50_000
        self.marks = WaterMarks({"pull": Queue()})
        self.marks.add(
            "send",
            Queue(
                read=lambda _: self.waiting, limits=lambda: WaterMark(100, 200), cause="disk_sync"
            ),
        )
        self.sample(1000)

    def sample(
        self,
        elapsed_ms: int = 100,
        *,
        lag_ms: int = 0,
        cause: str = "cpu",
        size: int = 0,
        head_wait_ms: int = 0,
    ) -> None:
        self.now_ms += elapsed_ms
        self.waiting = WaterMark(size, head_wait_ms)
        self.marks.sample(self.now_ms, lag_ms, cause)


@pytest.fixture
def marks() -> Marks:
    return Marks()


def test_a_mark_is_the_peak_of_its_second(marks: Marks) -> None:
    marks.sample(size=3, head_wait_ms=10)
    marks.sample(size=7, head_wait_ms=5)
    marks.sample(lag_ms=40)
    assert marks.marks.of("send") == WaterMark(0, 0), "the second is not over"
    marks.sample(700)
    assert (marks.marks.of("send"), marks.marks.of("pull")) == (WaterMark(7, 40), WaterMark(0, 40))
    assert sorted(marks.marks.sizes()) == [("pull", 0), ("send", 7)]
    marks.sample(1000)
    assert marks.marks.of("send") == WaterMark(0, 0)
    assert marks.marks.of("no such queue") == WaterMark(0, 0)


@pytest.mark.parametrize(
    ("sample", "level", "says"),
    [
        ({"lag_ms": 100}, None, ""),
        ({"lag_ms": 101}, "INFO", "processor=send size=0 size_max=100 head_wait_ms=101 wait_ms_max=200 cause=cpu"),
        ({"lag_ms": 201}, "WARNING", "head_wait_ms=201 wait_ms_max=200 cause=cpu"),
        ({"size": 50, "head_wait_ms": 100}, None, ""),
        ({"size": 51, "head_wait_ms": 1}, "INFO", "size=51 size_max=100 head_wait_ms=1 wait_ms_max=200 cause=disk_sync"),
        ({"size": 101, "head_wait_ms": 20, "lag_ms": 9}, "WARNING", "size=101 size_max=100 head_wait_ms=20 wait_ms_max=200 cause=disk"),
    ],
)  # fmt: skip
def test_a_mark_above_half_of_its_limit_is_logged(
    marks: Marks,
    caplog: pytest.LogCaptureFixture,
    sample: dict[str, int],
    level: str | None,
    says: str,
) -> None:
    caplog.set_level("INFO")
    marks.sample(**sample)  # type: ignore[arg-type]
    assert [(record.levelname, record.message[:12]) for record in caplog.records] == (
        [] if level is None else [(level, "water_marks ")]
    )
    assert says in caplog.text


def test_a_cause_is_logged_once_a_minute_and_once_more_when_it_exceeds_the_limit(
    marks: Marks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for lag_ms in (150, 160, 250, 260, 150):
        marks.sample(lag_ms=lag_ms)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    marks.sample(lag_ms=250, cause="disk_write")
    assert len(caplog.records) == 3, "each cause has its own line"
    marks.sample(59_000, lag_ms=250)
    assert len(caplog.records) == 3
    marks.sample(1_000, lag_ms=250)
    assert len(caplog.records) == 4
