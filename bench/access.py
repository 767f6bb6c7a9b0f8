"""How many requests a second does access control let pass? Prints one JSON line; see README.md."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import _modes
from orbitmq.access.account_files import AccountFiles
from orbitmq.access.credentials import Credentials, RequestSigner
from orbitmq.access.guards import Guard, UserChecker, guard_of_accounts, guard_of_users
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import acl_of
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand

BATCH = 64
PEER = "192.0.2.1:40000"
ALICE = Credentials("alice-key", "alice-secret")
PULL = {"topic": "T", "consumerGroup": "g", "queueId": "1", "queueOffset": "9", "maxMsgNums": "32", "sysFlag": "2", "commitOffset": "0"}
SEND = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0", "i": "WAIT\x01true", "j": "0"}


def guards(folder: Path) -> dict[str, Guard]:
    """One of each style, with ten rules."""
    topics = [f"T{number}" for number in range(8)]
    perms = ", ".join(f"{name}=PUB|SUB" for name in ["T", *topics])
    account = f"{{accessKey: {ALICE.access_key}, secretKey: {ALICE.secret_key}, defaultGroupPerm: SUB, topicPerms: [{perms}]}}"
    (folder / "plain_acl.yml").write_text(f"accounts: [{account}]\n")
    files, store = AccountFiles(folder, lambda: 0), UserStore(folder)
    files.load()
    store.create_user(UserInfo(username=ALICE.access_key, password=ALICE.secret_key))
    resources = ["Group:*", *(f"Topic:{name}" for name in ["T", *topics])]
    entries = [PolicyEntryInfo(resource=each, actions=["Pub", "Sub"], decision="Allow") for each in resources]
    store.put_acl(acl_of(AclInfo(subject=f"User:{ALICE.access_key}", policies=[PolicyInfo(entries=entries)])))
    return {
        "accounts": guard_of_accounts(lambda: files.accounts),
        "users": guard_of_users(UserChecker(store, "C", authorizes=True)),
    }


def workloads(folder: Path) -> dict[str, Callable[[], None]]:
    """What is measured; each does it `BATCH` times."""

    def checked(guard: Guard, code: int, fields: dict[str, str], body: bytes | None) -> Callable[[], None]:
        request = RemotingCommand(code, ext_fields=dict(fields), body=body)
        RequestSigner(ALICE).before("", request)
        data = bytearray(frame.encode(request))

        def work() -> None:
            for _ in range(BATCH):  # as before the compiled path: decoded, then checked
                assert guard.lets_pass(PEER, frame.decode(data, 0, len(data)))

        return work

    kinds = {
        "send 256 bytes": (RequestCode.SEND_MESSAGE_V2, SEND, b"x" * 256),
        "send 4 KiB": (RequestCode.SEND_MESSAGE_V2, SEND, b"x" * 4096),
        "pull": (RequestCode.PULL_MESSAGE, PULL, None),
    }
    return {f"{style}, {name}": checked(guard, *kind) for style, guard in guards(folder).items() for name, kind in kinds.items()}


def measure(seconds: float) -> dict[str, float]:
    """Per second of CPU time, by workload."""
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in workloads(Path(folder)).items():
            rounds, begin = 0, time.process_time()
            while (used := time.process_time() - begin) < seconds:
                work()
                rounds += 1
            rates[name] = rounds * BATCH / used
    return rates


if __name__ == "__main__":
    _modes.run(
        __file__,
        str(__doc__),
        lambda seconds: {"rates": measure(seconds)},
        lambda rates, _: {"per_cpu_s": _modes.rounded(rates)},
        seconds=0.3,
        quick_seconds=0.05,
    )
