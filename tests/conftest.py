"""What every test shares: the table of outside programs, how Hypothesis runs, and interrupts that mean something to who is started."""

import signal

from hypothesis import settings

pytest_plugins = ["requirements_table"]

settings.register_profile("orbitmq", deadline=None)  # two busy cores say nothing of an example's own speed
settings.load_profile("orbitmq")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is to run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
