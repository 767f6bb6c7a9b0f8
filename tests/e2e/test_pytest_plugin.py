"""The pytest plug-in in a project that has nothing but pytest and an installed OrbitMQ."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

HERE = Path(__file__).parents[2]

SENDS = """
import asyncio
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient

def runtime_info(address):
    async def ask():
        async with RemotingClient(ClientConfig(), SystemClock()) as client:
            return await client.invoke(address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return asyncio.run(ask())
"""


class Project:
    """A folder with tests, and OrbitMQ as an installer lays it down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._site = folder / "site"
        info = self._site / "orbitmq-1.0.dist-info"
        info.mkdir(parents=True)
        points = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["entry-points"][
            "pytest11"
        ]
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orbitmq\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[pytest11]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        )
        sources = sorted((HERE / "src").rglob("*.py"))
        (info / "RECORD").write_text(
            "".join(f"{path.relative_to(HERE / 'src')},,\n" for path in sources)
        )

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text))

    def pytest(self, *arguments: str) -> str:
        """What pytest says there, all of whose tests must pass."""
        path = os.pathsep.join((str(self._site), str(HERE / "src")))
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "COV"))
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
            *arguments,
        ]
        told = subprocess.run(
            command,
            cwd=self.folder,
            env=environment | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.slow
def test_the_fixtures_give_clusters_as_markers_ask_for_them(project: Project) -> None:
    project.write("asks.py", SENDS)
    project.write(
        "test_it.py",
        """
        import pytest
        from asks import runtime_info

        stores = []
        shared = []

        def test_one_broker(mq):
            assert runtime_info(mq.broker_address()).code == 0
            stores.append(mq.store())

        def test_another_test_has_another(mq):
            assert mq.store() not in stores
            assert not stores[0].exists()

        @pytest.mark.orbitmq(brokers=2, topics={"orders": 8})
        class TestMarked:
            def test_of_the_class(self, mq):
                assert mq.brokers == ("broker-a", "broker-b")

            @pytest.mark.orbitmq(brokers=["only"], virtual_clock=True)
            def test_the_nearest_marker_counts_for_what_it_names(self, mq):
                assert mq.brokers == ("only",)
                mq.advance(60)
                mq.kill()
                mq.restart()
                assert runtime_info(mq.broker_address()).code == 0

        @pytest.mark.parametrize("number", [1, 2])
        def test_one_for_all(mq_session, number):
            shared.append(mq_session)
            assert runtime_info(mq_session.broker_address()).code == 0
            assert all(each is mq_session for each in shared)
        """,
    )
    assert "6 passed" in project.pytest()


def test_tests_that_use_neither_fixture_do_not_pay_for_them(project: Project) -> None:
    project.write(
        "test_others.py",
        """
        import sys

        def test_nothing_of_the_servers_is_loaded():
            assert "orbitmq.testing.pytest_plugin" in sys.modules
            costly = ["orbitmq.broker", "orbitmq.nameserver", "orbitmq.remoting", "orbitmq.store", "orbitmq.testing.local_cluster"]
            assert [name for name in costly if name in sys.modules] == []
        """,
    )
    assert "1 passed" in project.pytest()


def test_the_fixtures_and_the_marker_tell_what_they_are(project: Project) -> None:
    assert "A name server and a broker for this test alone" in project.pytest("--fixtures")
    assert "@pytest.mark.orbitmq(**options)" in project.pytest("--markers")
