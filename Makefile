# Everything below works on a machine that has Python 3.11+ and Java 17: the rest is set up here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
# All but hdfs-kerberos, which wants a C compiler and Kerberos' headers.
EXTRAS := postgres mysql redis zookeeper hbase s3 hdfs
export UV_SYSTEM_CERTS := 1

.PHONY: help setup lock lint test test-acceptance test-others test-unit bench demo

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.ready   ## create the environment from requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet "uv==$(UV_VERSION)"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -r requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	@touch $@

lock: pyproject.toml   ## resolve requirements.lock again
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --group dev --universal \
	  --python-version 3.11 --no-header --output-file requirements.lock

lint: setup      ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

test-unit: setup ## the tests that need no server (minutes)
	@$(BIN)/python -m pytest -m "not server"

# Two at a time: the tests with Airflow wait more than they work.
test: setup      ## all tests; first installs and fetches the servers that they use (minutes)
	@$(BIN)/python -m tests.lab
	@$(MAKE) --no-print-directory --jobs=2 test-acceptance test-others

test-acceptance: setup
	@$(BIN)/python -m pytest tests/acceptance

test-others: setup
	@$(BIN)/python -m pytest --ignore=tests/acceptance

bench: setup     ## plan and commit; each offset store; 1,000 sensors; what a launch pays for; a large window and many small ones beside AvailableNow; on real servers
	@$(BIN)/python -m tests.bench.plan_and_commit
	@$(BIN)/python -m tests.bench.stores
	@$(BIN)/python -m tests.bench.triggerer
	@$(BIN)/python -m tests.bench.start
	@$(BIN)/python -m tests.bench.throughput
	@$(BIN)/python -m tests.bench.many_windows
	@$(BIN)/python -m tests.bench.large_windows

demo: setup      ## three scheduled windows, a killed job, a rerun, a replay by time, the proof; KEEP=1 leaves it up
	@$(BIN)/python -m tests.lab.demo
