"""What every test shares: the table of outside programs."""

pytest_plugins = ["requirements_table"]
