"""Our client's goals against Apache's, the results, and the table that shows both."""

from __future__ import annotations

from dataclasses import dataclass

from _broker_goals import AT_LEAST, Goal, aligned, number, word
from _client_room import CPP, JAVA, OURS
from _harness import Result

RATE, COST = "messages_per_s", "client_us_per_message"
_PEERS = {CPP: "C++", JAVA: "Java"}
_RATE_MIN = {  # ratio to the peer's, by section
    "single": {CPP: 1.0},
    "concurrent": {CPP: 1.0, JAVA: 0.5},
    "consume": {CPP: 1.0, JAVA: 0.5},
}


@dataclass(frozen=True, kw_only=True)
class PeerGoal(Goal):
    """A goal of one of our contenders, as a ratio to one peer."""

    contender: str
    peer: str

    def __str__(self) -> str:
        return f"{super().__str__()} {_PEERS[self.peer]}"


def verdicts(workloads: Result) -> list[Result]:
    """Return every goal of the measured workloads with the value reached; `met` is None if there is
    nothing to compare.
    """
    found = []
    for name, result in workloads.items():
        for contender in (each for each in OURS if each in result):
            for peer, limit in _RATE_MIN.get(result["section"], {}).items():
                goal = PeerGoal(
                    workload=name,
                    measure=RATE,
                    relation=AT_LEAST,
                    limit=limit,
                    contender=contender,
                    peer=peer,
                )
                value = result.get(f"{contender}/{peer}", {}).get(RATE)
                met = None if value is None else goal.met_by(value)
                wish = {
                    "workload": name,
                    "contender": contender,
                    "measure": RATE,
                    "goal": str(goal),
                }
                found.append({**wish, "value": value, "met": met, "noisy": result["noisy"]})
    return found


def table(workloads: Result) -> str:
    """Return all medians, ratios, goals and verdicts, one line per client and workload."""
    titles = [f"{what} {name}" for name in _PEERS.values() for what in ("rate to", "CPU to")]
    rows = [
        [
            "workload",
            "client",
            "messages/s",
            "CPU µs/message",
            "failed",
            *titles,
            "goals",
            "verdicts",
        ]
    ]
    found = verdicts(workloads)
    for name, result in workloads.items():
        title = name
        for contender in (each for each in (*OURS, *_PEERS) if each in result):
            own = result[contender]
            ratios = [
                result.get(f"{contender}/{peer}", {}).get(key)
                for peer in _PEERS
                for key in (RATE, COST)
            ]
            goals = [
                each for each in found if (each["workload"], each["contender"]) == (name, contender)
            ]
            numbers = [
                number(value)
                for value in (own.get(RATE), own.get(COST), own.get("failed"), *ratios)
            ]
            rows.append(
                [
                    title,
                    contender,
                    *numbers,
                    ", ".join(each["goal"] for each in goals),
                    ", ".join(map(word, goals)),
                ]
            )
            title = ""
        lost = {each: result[each]["rounds_lost"] for each in (*OURS, *_PEERS) if each in result}
        if any(lost.values()):
            rows.append(
                [
                    title,
                    "rounds lost",
                    ", ".join(f"{each} {count}" for each, count in lost.items() if count),
                ]
            )
    return aligned(rows)
