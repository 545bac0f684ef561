# Everything runs in .venv, which the first call creates. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIGHT := $(VENV)/.quickstart
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=15
COVERAGE ?=
CONSTRAINTS ?= -c constraints.txt
# The stores of small studies wait for the disk half of the time. Their files are in memory where 8 GB of it are free.
MEMORY = $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 8000000 ] 2>/dev/null && echo /dev/shm)
# A shell acts on a signal at once only while it waits: the tests are its background job, which it ends before their files.
PYTEST = tmp=$$(mktemp -d "$(or $(MEMORY),$${TMPDIR:-/tmp})/attnlab-tests-XXXXXX") && chmod 711 "$$tmp" && \
	trap 'kill $$tests 2>/dev/null; wait $$tests; rm -rf "$$tmp"' EXIT INT TERM; \
	TMPDIR=$$tmp $(BIN)/python -m pytest $(1) $(PYTEST_ARGS) & tests=$$!; wait $$tests

# Some images set it: each of the many processes of the tests would then compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-slow test-all lint types format package pages docs gpu gpu-kit overhead benchmarks clean
.DEFAULT_GOAL := help

help:
	@echo "make quickstart  set up, run ablations/quickstart.yaml, write runs/reports/quickstart/"
	@echo "make test        set up, run the tests that start no studies or servers: minutes"
	@echo "make test-slow   run the others (PYTEST_ARGS='-m exhaustive' for those that CI leaves out)"
	@echo "make test-all    run both in one session, as CI does"
	@echo "make lint        check style (ruff) and import contracts (import-linter)"
	@echo "make types       check types (pyright)"
	@echo "make format      format the code and apply ruff's fixes"
	@echo "make package     build the wheel and the source distribution, and run the wheel in an empty folder"
	@echo "make pages       render what reports/ does not hold from its stored results: the HTML pages and tables of runs"
	@echo "make docs        build the documentation site into site/, which opens offline"
	@echo "make gpu         run the tests that need a CUDA device, with PYTHON, without the contract's matrix"
	@echo "make gpu-kit     pack what a machine with PyTorch and a GPU lacks, to run attnlab there without a network"
	@echo "make overhead    measure what a study costs compared with a bare loop (half an hour on an idle machine)"
	@echo "make benchmarks  install the peers in environments of their own and time attnlab against them (two hours)"
	@echo "make clean       remove the environment, the caches, build/, site/ and gpu-kit/ (never runs/)"

# Not compiled: of 19,000 modules, 5,000 are ever imported, and Python compiles these when it first imports them.
$(STAMP): EXTRA := dev
$(LIGHT): EXTRA := ui
$(STAMP) $(LIGHT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(CONSTRAINTS) -e '.[$(EXTRA)]'
	@touch $@

# The development environment includes all that the quickstart needs; where there is none, a smaller one will do.
quickstart: $(or $(wildcard $(STAMP)),$(LIGHT))
	$(BIN)/attnlab run ablations/quickstart.yaml

test: $(STAMP)
	@$(call PYTEST,-m "not slow and not exhaustive and not gpu" $(COVERAGE))

test-slow: $(STAMP)
	@$(call PYTEST,-m "slow and not exhaustive and not gpu" $(COVERAGE))

# Both, for CI: the short tests fill the processes until the last long one ends.
test-all: $(STAMP)
	@$(call PYTEST,-m "not exhaustive and not gpu" $(COVERAGE))

# Only the files that have such tests: others import packages that a machine with a GPU may lack, and collecting them takes a minute.
gpu:
	$(PYTHON) -m pytest -m gpu $(filter-out tests/testing/test_contract.py,$(shell grep -rl --include='*.py' 'mark[.]gpu' tests))

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

package: $(STAMP)
	@.ci/package $(DIST)

pages: $(STAMP)
	$(BIN)/python -m attnlab.extras.rerender --imports examples/my_analysis/validity.py reports
	$(BIN)/attnlab claims page

docs: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m docgen

overhead: $(STAMP)
	$(BIN)/python -m benchmarks.overhead

benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks.speed

gpu-kit: $(STAMP)
	$(BIN)/python -m benchmarks.gpu_kit

clean:
	rm -rf $(VENV) build site gpu-kit .venv-peers .venv-peers-xl .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage *.egg-info
