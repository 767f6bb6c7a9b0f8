"""The `orbitmq` command against a cluster, in this process or as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from orbitmq.cli.main import cli

PATIENT = "20000"  # milliseconds for a call: a machine may be busy


class Shell:
    """Runs commands that have the name servers of a cluster in their environment."""

    def __init__(self, name_servers: str) -> None:
        self.environment = {"NAMESRV_ADDR": name_servers}

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        """What a command printed, and how it ended."""
        return CliRunner(env=self.environment).invoke(
            cli, [*arguments, "--timeout-ms", PATIENT], input=stdin, prog_name="orbitmq"
        )

    def table(self, *arguments: str, stdin: str | None = None) -> list[list[str]]:
        """The words of each line of a command that succeeds."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return [line.split() for line in result.stdout.splitlines()]

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        """What a command that succeeds says in JSON."""
        result = self.run(*arguments, "-o", "json", stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def fails(self, *arguments: str, code: int = 1) -> str:
        """The error of a command that fails."""
        result = self.run(*arguments)
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        return result.stderr

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on, as a process of its own."""
        program = "from orbitmq.cli.main import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
        )
