"""`mqnamesrv`: the original's command line, texts and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orbitmq.cli import original_options
from orbitmq.cli.endings import open_streams
from orbitmq.cli.original_options import Options

USAGE = """\
usage: mqnamesrv [-c <arg>] [-h] [-n <arg>] [-p]
 -c,--configFile <arg>    Name server config properties file
 -h,--help                Print help
 -n,--namesrvAddr <arg>   Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'
 -p,--printConfigItem     Print all config items"""

LONG_OPTIONS = {"configFile": "c", "help": "h", "namesrvAddr": "n", "printConfigItem": "p"}


def run(arguments: Sequence[str]) -> int:
    """Do what the command line asks; returns the exit code."""
    return original_options.run("mqnamesrv", USAGE, LONG_OPTIONS, arguments, _start)


def _start(options: Options) -> None:
    from orbitmq.cli.server_process import serve
    from orbitmq.common.config import load
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.name_server import NameServer

    loaded = load(NameServerConfig, file=options.get("c"))
    config = loaded.settings
    if "c" in options:
        print(f"load config properties file OK, {options['c']}")
    if "p" in options:
        for name, text in config.rows():
            print(f"{name}={text}")
        return
    original_options.set_up_logs_from_environment("namesrv", config.rocketmq_home)
    serve(
        "name server",
        NameServer(config),
        loaded,
        lambda host, port: print(
            f"The Name Server boot success. serializeType={config.header_encoding.value}, address"
            f" {host}:{port}",
            flush=True,
        ),
    )


def main() -> None:
    """Entry point of `mqnamesrv`."""
    open_streams()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
