"""`mqbroker`: the original's command line, texts and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orbitmq.cli import original_options
from orbitmq.cli.endings import open_streams
from orbitmq.cli.original_options import Options

USAGE = """\
usage: mqbroker [-c <arg>] [-h] [-m] [-n <arg>] [-p]
 -c,--configFile <arg>       Broker config properties file
 -h,--help                   Print help
 -m,--printImportantConfig   Print important config item
 -n,--namesrvAddr <arg>      Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'
 -p,--printConfigItem        Print all config item
"""

LONG_OPTIONS = {
    "configFile": "c",
    "help": "h",
    "printImportantConfig": "m",
    "namesrvAddr": "n",
    "printConfigItem": "p",
}


def run(arguments: Sequence[str]) -> int:
    """Do what the command line asks; returns the exit code."""
    return original_options.run("mqbroker", USAGE, LONG_OPTIONS, arguments, _start)


def _start(options: Options) -> None:
    from orbitmq.broker.broker import Broker
    from orbitmq.broker.config.broker_config import load_broker
    from orbitmq.cli.server_process import serve

    loaded = load_broker(
        file=options.get("c"), flags={"namesrvAddr": options["n"]} if "n" in options else None
    )
    config = loaded.settings
    if "p" in options or "m" in options:
        for name, text in config.rows(important_only="p" not in options):
            print(f"{name}={text}")
        return
    original_options.set_up_logs_from_environment("broker", config.rocketmq_home)

    def ready(host: str, port: int) -> None:
        known = f" and name server is {config.namesrv_addr}" if config.namesrv_addr else ""
        print(
            f"The broker[{config.broker_name}, {host}:{port}] boot success."
            f" serializeType={config.header_encoding.value}{known}",
            flush=True,
        )

    serve("broker", Broker(config), loaded, ready)


def main() -> None:
    """Entry point of `mqbroker`."""
    open_streams()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
