"""`python -m orbitmq` is `orbitmq`."""

from orbitmq.cli.main import main

main()
