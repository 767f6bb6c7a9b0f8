"""What every test shares: the table of outside programs, and how Hypothesis runs."""

from hypothesis import settings

pytest_plugins = ["requirements_table"]

settings.register_profile("orbitmq", deadline=None)  # two busy cores say nothing of an example's own speed
settings.load_profile("orbitmq")
