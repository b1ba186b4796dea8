# Everything below works on a machine that has Python 3.11 to 3.13 and Java 17: the rest is set up here.
# The system's own, if it has one of the version that is on the PATH: distributions build theirs with all optimizations. pyenv by default does
# not, and its Python takes half as much CPU again for the same work.
ON_PATH = $(shell python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON ?= $(or $(shell /usr/bin/python$(ON_PATH) -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null),python3)
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
# All but hdfs-kerberos, which wants a C compiler and Kerberos' headers.
EXTRAS := spark postgres mysql redis zookeeper hbase s3 hdfs metrics openlineage
export UV_SYSTEM_CERTS := 1
# Images for containers like to set it, and then each Python compiles all of Airflow again: 5 CPU seconds instead of 2.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lock lock-jars lint test test-unit test-matrix test-versions fetch bench demo docs docs-site docs-serve dist

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.ready   ## create the environment from requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet "uv==$(UV_VERSION)"
	@# First without the network: behind an index that forbids caching, uv would fetch and build PySpark again (30 CPU seconds, 1 GB).
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --offline -r requirements.lock 2>/dev/null || \
	  VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -r requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	@touch $@

lock: pyproject.toml   ## resolve requirements.lock again
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --group dev --universal \
	  --python-version 3.11 --no-header --output-file requirements.lock

lock-jars: setup ## list again which jars the servers of the lab need, after a change of their sets
	@$(BIN)/python -m tests.lab.lock_jars

lint: setup      ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

test-unit: setup ## the quick tests: no server, and fewer examples of each law (a minute)
	@# Three processes for two cores, as some tests wait.
	@$(BIN)/python -m pytest -m "not server and not slow" --hypothesis-profile=quick --numprocesses=3 --dist=worksteal

# More processes than cores, as most tests wait for a server.
# One that crashes is the end: pytest-xdist gives the next one the work that is done, and waits for it.
PROCESSES ?= 5
test: setup fetch ## all tests, PROCESSES=5 at a time; ORDER=random shuffles them
	@$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --max-worker-restart=0 --durations=20 \
	  $(if $(filter random,$(ORDER)),--no-loadscope-reorder --random-order-bucket=package --random-order-seed=$(or $(SEED),$(shell date +%s)))

test-matrix: setup ## one job on each Spark that docs/compatibility.md names (it fetches them: gigabytes); WRITE=1 writes the page
	@$(BIN)/python -m tests.matrix $(if $(WRITE),--write)

# The environments are made once, in the cache of the lab.
test-versions: setup fetch ## the lowest and the newest versions, each Airflow with its scheduler, each Python (an hour); CASE="quick tests" is one column; WRITE=1 writes docs/compatibility.md
	@$(BIN)/python -m tests.bounds $(if $(CASE),--case "$(CASE)") $(if $(WRITE),--note)

fetch: setup build/launchers/.ready ## install and fetch the servers that the tests use (minutes, once a machine)
	@$(BIN)/python -m tests.lab

bench: setup     ## a DAG's parse; plan and commit; lag in time; each offset store; a million windows; the page; crowds; 1,000 sensors; what a launch pays for; a large window and many small ones beside AvailableNow; on real servers
	@$(BIN)/python -m tests.bench.parsing
	@$(BIN)/python -m tests.bench.plan_and_commit
	@$(BIN)/python -m tests.bench.lag_in_time
	@$(BIN)/python -m tests.bench.stores
	@$(BIN)/python -m tests.bench.long_history
	@$(BIN)/python -m tests.bench.page
	@$(BIN)/python -m tests.bench.crowds
	@$(BIN)/python -m tests.bench.triggerer
	@$(BIN)/python -m tests.bench.start
	@$(BIN)/python -m tests.bench.throughput
	@$(BIN)/python -m tests.bench.many_windows
	@$(BIN)/python -m tests.bench.large_windows

demo: setup      ## three scheduled windows, a killed job, a rerun, a replay by time, the proof; KEEP=1 leaves it up
	@$(BIN)/python -m tests.lab.demo

# The examples of other launchers: their providers, on the Airflow of requirements.lock. Not in it, as Google's alone would double it.
build/launchers/.ready: pyproject.toml $(VENV)/.ready
	@echo "==> Python environment in build/launchers"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/launchers
	@$(BIN)/uv pip install --quiet --python build/launchers/bin/python --group launchers
	@touch $@

# Programs that no test needs, in an environment for each group of pyproject.toml.
build/%/.ready: pyproject.toml $(VENV)/.ready
	@echo "==> Python environment in build/$*"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/$*
	@$(BIN)/uv pip install --quiet --python build/$*/bin/python --group $*
	@touch $@

docs: setup      ## the quick tests of the docs, then the docs site; a link that leads nowhere, or code of a page that does not run, is an error
	@# The code, the links and the names of the pages; what needs a server is in make test.
	@$(BIN)/python -m pytest --quiet -m "not server and not slow" tests/docs
	@$(MAKE) --no-print-directory docs-site

# Alone where make test runs, too: it has the tests of the docs.
docs-site: build/docs/.ready   ## build the docs site into build/site
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict --quiet --clean
	@echo "build/site/index.html"

docs-serve: build/docs/.ready   ## show the docs site at http://127.0.0.1:8000 while you write
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs serve --strict

dist: setup build/dist/.ready   ## wheel, source distribution and SBOM in dist/: checked, and tried with the newest and the lowest versions
	@$(BIN)/python -m tests.release $(BIN)/uv build/dist/bin
