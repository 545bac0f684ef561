# Everything runs in .venv, which the first call makes. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist loadfile

.PHONY: help quickstart test lint types format gpu overhead benchmarks clean
.DEFAULT_GOAL := help

help:
	@echo "make quickstart  set up, run ablations/quickstart.yaml, write reports/quickstart/"
	@echo "make test        set up, run the tests (PYTEST_ARGS='-m slow' for the slow ones)"
	@echo "make gpu         run the tests that need a CUDA device in PYTHON's environment, the contract's matrix apart"
	@echo "make lint        ruff: style and imports"
	@echo "make types       pyright: types"
	@echo "make format      let ruff repair what it can"
	@echo "make overhead    measure what a study costs beside a bare loop (half an hour on a quiet machine)"
	@echo "make benchmarks  set the peers up in environments of their own, time attnlab beside them (two hours on a quiet machine)"
	@echo "make clean       remove the environment and the caches (never runs/ or reports/)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: $(STAMP)
	$(BIN)/attnlab run ablations/quickstart.yaml

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

gpu:
	$(PYTHON) -m pytest -m gpu --ignore=tests/testing/test_contract.py

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .

overhead: $(STAMP)
	$(BIN)/python -m benchmarks.overhead

benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks.speed

clean:
	rm -rf $(VENV) .venv-peers .venv-peers-xl .pytest_cache .ruff_cache *.egg-info
