# Every target sets up what it needs; everything goes into .venv. Start with `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo up test concurrency check lint matrix simulate bench bench-accounting requirements evaluate lock

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.done
WORKERS ?= 2
ARGS ?=
RESULTS := .test-results.json

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## install everything into .venv, by hash

$(READY): requirements.lock pyproject.toml .ci/install
	@.ci/install $(VENV)

demo: $(READY) ## run the samples through the real daemon and web server, print the report, end
	@$(BIN)/receipts demo

up: $(READY) ## serve the web UI and the daemon until Ctrl-C
	@$(BIN)/receipts up

test: $(READY) ## run every test, the whole-process ones too
	@$(BIN)/python -m pytest -n $(WORKERS) --results=$(RESULTS)

concurrency: $(READY) ## eight workers, 2,000 jobs, kills and a server restart on PostgreSQL; print the figures
	@RECEIPTS_TEST_JOBS=2000 $(BIN)/python -m pytest -s receipt_pipeline_tests/crash/test_many_workers.py

check: lint ## format, lint, types, import rules, sizes and words
	@$(BIN)/python -m pytest receipt_pipeline_tests/tidy

lint: $(READY) ## the part of check that is no test: format, lint, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

matrix: $(READY) ## play the crash matrix on SQLite and PostgreSQL and update docs/invariants.md; ARGS="--all --json" plays SQLite
	@$(BIN)/python -m receipt_pipeline_tests.chaos.matrix $(ARGS)

simulate: $(READY) ## simulate 1,000 seeds and check every invariant; ARGS="--seeds N" or ARGS="--seed S"
	@$(BIN)/python -m receipt_pipeline_tests.chaos.simulate $(ARGS)

bench: $(READY) ## print the performance ratios of this machine
	@$(BIN)/python -m benchmarks

bench-accounting: $(READY) ## print what a report costs against its floors: ledgers of 100,000 and 1,000,000 jobs, Parquet of 10,000,000
	@$(BIN)/python -m benchmarks.accounting

requirements: $(READY) ## count the requirements that passing tests carry, and name the others
	@$(BIN)/python -m receipt_pipeline_tests.requirements_report --reusable $(RESULTS) || $(MAKE) --no-print-directory test || true
	@$(BIN)/python -m receipt_pipeline_tests.requirements_report $(RESULTS)

evaluate: $(READY) ## measure fields and risk on the development scans, write evaluate.json
	@$(BIN)/receipts evaluate

lock: ## resolve the dependencies anew (needs uv)
	@trap 'rm -f uv.lock' EXIT; uv lock --python 3.11 && \
	uv export --frozen --all-extras --no-emit-project --no-header -o requirements.lock > /dev/null
