"""What the interop tests share: the releases of Apache RocketMQ, fetched once, and the original
name server beside ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from interop import apache, broker_pair, client_matrix_room, other_clients, subject
from interop.apache import ApacheUnavailable, Release
from interop.broker_conversation import BrokerConversation
from interop.client_matrix_room import Room
from interop.conversation import Conversation, forget_everything
from interop.other_clients import StartClient
from support.common.requirements import lack


def _fetched(version: str) -> Release:
    try:
        return Release(version).fetch()
    except ApacheUnavailable as missing:
        lack("maven", str(missing))


@pytest.fixture(scope="session")
def apache_5() -> Release:
    return _fetched("5.5.0")


@pytest.fixture(scope="session")
def apache_4() -> Release:
    return _fetched("4.9.7")


@pytest.fixture(params=["5.5.0", "4.9.7"])
def release(request: pytest.FixtureRequest) -> Release:
    """Each release in turn."""
    return _fetched(request.param)


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A directory for the servers that one test module shares."""
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture(scope="package")
def name_servers(
    apache_5: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The addresses of the original and of ours, both as they are by default."""
    home = tmp_path_factory.mktemp("name-servers")
    original = apache.name_server(apache_5, home / "original")
    ours = subject.name_server(home / "ours")
    with apache.running(ours, original):
        yield original.address, ours.address


@pytest.fixture
def both(name_servers: tuple[str, str]) -> Iterator[Conversation]:
    """A conversation with both that begins with nothing registered, and fails when they
    differed.
    """
    for address in name_servers:
        forget_everything(address)
    talk = Conversation(*name_servers)
    yield talk
    talk.close_all()
    talk.check()


@pytest.fixture(scope="module")
def broker_addresses(
    apache_5: Release, name_servers: tuple[str, str], module_home: Path
) -> Iterator[tuple[str, str]]:
    """The original broker and ours, which one test module shares."""
    with broker_pair.both_brokers(apache_5, name_servers, module_home) as addresses:
        yield addresses


@pytest.fixture
def both_brokers(broker_addresses: tuple[str, str]) -> Iterator[BrokerConversation]:
    with broker_pair.conversation(broker_addresses) as talk:
        yield talk


_ORIGINALS = [
    pytest.param(name, marks=pytest.mark.needs("java", "maven"))
    for name in client_matrix_room.ORIGINALS
]


@pytest.fixture(scope="session", params=[*_ORIGINALS, client_matrix_room.OURS])
def room(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    """Each cluster that the client library is tried with: pytest runs the tests of all modules with
    one, then those with the next.
    """
    with client_matrix_room.opened_room(
        request.param, tmp_path_factory.mktemp(f"clients-{request.param}")
    ) as opened:
        yield opened


@pytest.fixture(
    params=[
        pytest.param(other_clients.GO, marks=pytest.mark.needs("go")),
        pytest.param(other_clients.CPP, marks=pytest.mark.needs("pip")),
    ]
)
def language(request: pytest.FixtureRequest) -> str:
    """Each language that Apache has a client for."""
    name: str = request.param
    return name


@pytest.fixture
def start_client(language: str, tmp_path: Path) -> StartClient:
    """Starts the client of a language: see `other_client`."""
    return partial(other_clients.other_client, language, tmp_path / "client")
