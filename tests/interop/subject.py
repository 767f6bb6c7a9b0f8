"""The name server under test, as a child process that reads the same configuration file as the
original.

`ORBITMQ_INTEROP_SUBJECT=apache` puts a second original in its place: then every comparison must
find no difference, which shows that the comparisons themselves are right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from interop import apache
from interop.apache import Release, Server

IS_ORIGINAL = os.environ.get("ORBITMQ_INTEROP_SUBJECT") == "apache"


def name_server(home: Path, settings: Mapping[str, object] | None = None) -> Server:
    """A name server with its files in `home`, configured as `apache.name_server` configures the
    original.
    """
    if IS_ORIGINAL:
        return apache.name_server(Release("5.5.0").fetch(), home, settings)
    home.mkdir(parents=True)
    port = apache.free_port()
    own = {
        "listenPort": port,
        "bindAddress": "127.0.0.1",
        "kvConfigPath": home / "kvConfig.json",
        "configStorePath": home / "namesrv.properties",
    }
    configuration = home / "server.conf"
    configuration.write_text(
        "".join(f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items())
    )
    command = [str(Path(sys.executable).with_name("mqnamesrv")), "-c", str(configuration)]
    return Server(
        command, port, home / "console.log", {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    )
