"""`mqnamesrv`: the original's command line, texts and exit codes.

0 = help, printed configuration, or a clean stop; 1 = the command line is wrong; 255 = it cannot start.
"""

from __future__ import annotations

import getopt
import os
import sys
from collections.abc import Sequence

from orbitmq.common.errors import OrbitError

USAGE = """\
usage: mqnamesrv [-c <arg>] [-h] [-n <arg>] [-p]
 -c,--configFile <arg>    Name server config properties file
 -h,--help                Print help
 -n,--namesrvAddr <arg>   Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'
 -p,--printConfigItem     Print all config items"""

LONG_OPTIONS = {"configFile": "c", "help": "h", "namesrvAddr": "n", "printConfigItem": "p"}
EXIT_USAGE = 1
EXIT_CANNOT_START = 255


def run(arguments: Sequence[str]) -> int:
    """Do what the command line asks; returns the exit code."""
    try:
        options = _parse(arguments)
    except getopt.GetoptError as error:
        name = error.opt if len(error.opt) > 1 else LONG_OPTIONS.get(error.opt, error.opt)
        dashes = "-" if len(name) == 1 else "--"
        missing = "requires argument" in error.msg
        print(
            f"Missing argument for option: {LONG_OPTIONS.get(name, name)}" if missing else f"Unrecognized option: {dashes}{name}",
            file=sys.stderr,
        )
        print(USAGE)
        return EXIT_USAGE
    if "h" in options:
        print(USAGE)
        return 0
    try:
        _start(options.get("c"), print_config="p" in options)
    except OrbitError as error:
        print(f"mqnamesrv: {error}", file=sys.stderr)
        return EXIT_CANNOT_START
    return 0


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    """Option letter → argument; a long name may stand after one dash, and what is no option is passed over."""
    two_dashed = ["-" + text if text[:1] == "-" and text[1:].split("=")[0] in LONG_OPTIONS else text for text in arguments]
    longs = [name + ("=" if letter in "cn" else "") for name, letter in LONG_OPTIONS.items()]
    pairs, _ = getopt.gnu_getopt(two_dashed, "c:hn:p", longs)
    return {LONG_OPTIONS.get(name.lstrip("-"), name.lstrip("-")): argument for name, argument in pairs}


def _start(config_file: str | None, *, print_config: bool) -> None:
    from orbitmq.cli.name_server_process import serve, set_up_logs
    from orbitmq.common.config import load
    from orbitmq.nameserver.config import NameServerConfig

    loaded = load(NameServerConfig, file=config_file)
    config = loaded.settings
    if config_file is not None:
        print(f"load config properties file OK, {config_file}")
    if print_config:
        for name, text in config.rows():
            print(f"{name}={text}")
        return
    set_up_logs(
        config,
        level=os.environ.get("ORBITMQ_LOG_LEVEL", "info"),
        log_format=os.environ.get("ORBITMQ_LOG_FORMAT", "text"),
        file=os.environ.get("ORBITMQ_LOG_FILE"),
    )
    serve(
        loaded,
        lambda host, port: print(f"The Name Server boot success. serializeType=JSON, address {host}:{port}", flush=True),
    )


def main() -> None:
    """Entry point of `mqnamesrv`."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
