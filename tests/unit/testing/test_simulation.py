"""The scheduler: virtual time, the order of events, and how a failing seed is repeated."""

from __future__ import annotations

from functools import partial

import pytest

from orbitmq.testing import simulation as module
from orbitmq.testing.simulation import (
    COUNT_VARIABLE,
    SEED_VARIABLE,
    Simulation,
    SimulationStuckError,
    SimulationTimeoutError,
    repeat_command,
    seeds_to_run,
)


def test_events_run_in_the_order_of_their_times_and_time_moves_with_them() -> None:
    simulation, seen = Simulation(1), list[tuple[int, str]]()

    def happened(name: str) -> None:
        seen.append((simulation.now_ms, name))

    for delay_ms, name in ((30, "c"), (10, "a"), (20, "b")):
        simulation.call_later_ms(delay_ms, partial(happened, name))
    simulation.run_for(25)
    assert seen == [(10, "a"), (20, "b")]
    assert simulation.now_ms == 25
    simulation.run_for(5)
    assert seen[-1] == (30, "c")


def test_calls_soon_keep_their_order_and_precede_what_is_due_then() -> None:
    for seed in range(20):
        simulation, seen = Simulation(seed), list[int]()
        simulation.call_later_ms(0, partial(seen.append, 9))
        for number in range(5):
            simulation.call_soon(partial(seen.append, number))
        simulation.run_for(0)
        assert seen == [0, 1, 2, 3, 4, 9]


def test_the_seed_decides_the_order_of_events_of_one_millisecond() -> None:
    def order(seed: int) -> tuple[int, ...]:
        simulation, seen = Simulation(seed), list[int]()
        for number in range(6):
            simulation.call_later_ms(5, partial(seen.append, number))
        simulation.run_for(5)
        return tuple(seen)

    assert order(3) == order(3)
    assert len({order(seed) for seed in range(20)}) > 10


def test_a_cancelled_call_does_not_run() -> None:
    simulation, seen = Simulation(1), list[str]()
    call = simulation.call_later_ms(5, lambda: seen.append("no"))
    assert call.is_pending
    call.cancel()
    simulation.run_for(10)
    assert seen == []


def test_all_clocks_advance_together_each_with_its_skew() -> None:
    simulation = Simulation(1)
    true, ahead = simulation.new_clock(), simulation.new_clock(skew_ms=700, uptime_ms=50)
    simulation.run_for(40)
    assert ahead.now_ms() - true.now_ms() == 700
    assert (true.monotonic_ms(), ahead.monotonic_ms()) == (40, 90)
    late = simulation.new_clock()
    assert late.now_ms() == true.now_ms()
    ahead.set_wall_ms(5)
    simulation.run_for(10)
    assert (ahead.now_ms(), ahead.monotonic_ms()) == (15, 100)


def test_run_until_stops_at_the_event_that_makes_the_condition_true() -> None:
    simulation, seen = Simulation(1), list[int]()
    for delay_ms in (10, 20, 30):
        simulation.call_later_ms(delay_ms, lambda: seen.append(simulation.now_ms))
    assert simulation.run_until(lambda: seen[1:], 1_000) == [20]
    assert simulation.now_ms == 20


def test_a_condition_that_depends_on_the_time_alone_is_looked_at_when_it_is_up() -> None:
    simulation = Simulation(1)
    assert simulation.run_until(lambda: simulation.now_ms >= 10, 10)


def test_a_condition_that_does_not_come_true_is_named_with_its_last_value() -> None:
    simulation = Simulation(1)
    with pytest.raises(SimulationTimeoutError, match=r"a leader did not .* 50 ms .* \[\]"):
        simulation.run_until(lambda: [], 50, "a leader")
    assert simulation.now_ms == 50


def test_events_that_follow_each_other_without_time_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVENTS_PER_MS_MAX", 100)
    simulation = Simulation(1)

    def again() -> None:
        simulation.call_soon(again)

    again()
    with pytest.raises(SimulationStuckError, match="let time pass"):
        simulation.run_for(1)


def test_a_failure_names_the_command_that_repeats_it_and_the_last_events() -> None:
    closed = []
    simulation = Simulation(17)
    simulation.on_close(lambda: closed.append(True))
    simulation.call_later_ms(3, lambda: simulation.note("division"))
    simulation.call_later_ms(4, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError) as failure, simulation:
        simulation.run_for(10)
    command, events = failure.value.__notes__
    assert command == (
        f"seed 17 failed; repeat it by: {SEED_VARIABLE}=17 python -m pytest"
        " 'tests/unit/testing/test_simulation.py"
        "::test_a_failure_names_the_command_that_repeats_it_and_the_last_events'"
    )
    assert events == "its last events:\n3 division"
    assert closed == [True]


def test_the_command_names_the_test_without_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_a.py::test_b[7] (call)")
    assert repeat_command(7) == f"{SEED_VARIABLE}=7 python -m pytest 'tests/test_a.py::test_b'"
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert f"{SEED_VARIABLE}=7" in repeat_command(7)


def test_the_environment_chooses_one_seed_or_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    monkeypatch.delenv(COUNT_VARIABLE, raising=False)
    assert list(seeds_to_run(3)) == [0, 1, 2]
    monkeypatch.setenv(COUNT_VARIABLE, "5")
    assert list(seeds_to_run(3)) == [0, 1, 2, 3, 4]
    monkeypatch.setenv(SEED_VARIABLE, "42")
    assert list(seeds_to_run(3)) == [42]
