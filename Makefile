# Thin targets over standard tools. Everything sets itself up: `make run` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=
PURE_TESTS ?= tests
ELSEWHERE := not interop and not clients and not crash and not spark and not soak
ONLY := $(if $(SHORT), and short)
READY := $(VENV)/ready
KERNELS := $(VENV)/kernels
KERNEL_SOURCES := $(shell find src -name '*.pxd') $(shell grep -rl '^import cython' src --include='*.py') src/orbitmq/protocol/command.py

# Tests start hundreds of Python processes: they find their modules compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test slow test-pure repeat interop clients spark crash soak fuzz check format bench setup lock docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "make %-10s %s\n", $$1, $$2}'

run: $(KERNELS)  ## start a broker, send orders, count them with Spark (Ctrl-C ends it)
	@$(BIN)/python tools/demo.py

test: $(KERNELS)  ## the fast tests, golden bytes included
	$(PYTEST) -n auto -m "not slow and $(ELSEWHERE)" $(PYTEST_ARGS) tests

slow: $(KERNELS)  ## the slow tests of the same kinds
	$(PYTEST) -n auto -m "slow and $(ELSEWHERE)" $(PYTEST_ARGS) tests

test-pure: $(KERNELS)  ## the fast tests with the kernels interpreted
	ORBITMQ_PURE=1 $(PYTEST) -n auto -m "not slow and $(ELSEWHERE)" $(PYTEST_ARGS) $(PURE_TESTS)

repeat: $(KERNELS)  ## the fast tests ten times beside two busy loops; build/suite-runs.jsonl says how each run went
	$(BIN)/python tools/repeat_suite.py --busy 2

interop: $(KERNELS)  ## against the real Apache RocketMQ (Java and Maven, fetched at first use)
	$(PYTEST) -m interop $(PYTEST_ARGS) tests

clients: $(KERNELS)  ## real clients and mqadmin against the broker; SHORT=1 runs a few of them
	$(PYTEST) -m "clients$(ONLY)" $(PYTEST_ARGS) tests

spark: $(KERNELS)  ## the Spark source, sinks, pipelines and jobs; SHORT=1 runs a few of them
	$(PYTEST) -m "spark and not crash$(ONLY)" $(PYTEST_ARGS) tests

crash: $(KERNELS)  ## processes killed and files cut on purpose; SHORT=1 runs a few of them
	$(PYTEST) -m "crash$(ONLY)" $(PYTEST_ARGS) tests

soak: $(KERNELS)  ## an hour of mixed load; ORBITMQ_SOAK_SECONDS shortens it
	$(PYTEST) -m soak tests

fuzz: $(KERNELS)  ## mutated frames against the decoders, for a minute
	$(BIN)/python tests/fuzz/frame_target.py --seconds 60

check: $(KERNELS)  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## rewrite sources as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(KERNELS)  ## speed beside Apache's servers, one JSON line per program
	$(BIN)/python bench/record.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/remoting.py
	$(BIN)/python bench/nameserver.py
	$(BIN)/python bench/broker.py
	$(BIN)/python bench/loop_lag.py
	$(BIN)/python bench/messaging.py
	$(BIN)/python bench/local_cluster.py
	$(BIN)/python bench/client.py
	$(BIN)/python bench/spark.py

docs: $(KERNELS)  ## rewrite the generated pages, and build the site into build/site
	$(BIN)/python tools/configuration_page.py
	$(BIN)/python tools/reference_pages.py
	$(BIN)/python tools/build_site.py

setup: $(KERNELS)  ## the environment in .venv, and the kernels

$(READY): requirements.lock pyproject.toml tools/set_up.py
	@$(PYTHON) tools/set_up.py $(VENV)
	@touch $@

$(KERNELS): $(READY) setup.py src/orbitmq/kernels.py $(KERNEL_SOURCES)
	@$(BIN)/python tools/build_kernels.py
	@touch $@

lock:  ## pin the newest versions of what pyproject.toml asks for
	$(PYTHON) tools/lock.py

clean:  ## forget the environment and everything built
	rm -rf $(VENV) build
	find src -name '*.so' -delete
	find src tests bench tools -name __pycache__ -prune -exec rm -rf {} +
