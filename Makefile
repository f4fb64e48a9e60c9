# Every target installs what it needs into .venv. Start with `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo up test check lint matrix simulate concurrency train docs screenshots bench bench-accounting requirements evaluate lock

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.done
WORKERS ?= 2
ARGS ?=
# Genuine receipts to learn from, and the labels of those that are kept for evaluation.
TEXTS ?=
KEPT ?= $(if $(TEXTS),$(wildcard $(TEXTS)/transcripts/labels.csv))
RESULTS := .test-results.json

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## install the locked packages and this project into .venv

$(READY): requirements.lock pyproject.toml .ci/install
	@.ci/install $(VENV)

demo: $(READY) ## process the samples with the real daemon and web server and print the report
	@$(BIN)/receipts demo

up: $(READY) ## run the web UI and the daemon until Ctrl-C
	@$(BIN)/receipts up

test: $(READY) ## run every test
	@$(BIN)/python -m pytest -n $(WORKERS) --results=$(RESULTS)

check: lint ## run lint, then the tests of imports, sizes, words and pages
	@$(BIN)/python -m pytest receipt_pipeline_tests/tidy

lint: $(READY) ## check format, style, types and the Dagster definitions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@home=$$(mktemp -d); trap 'rm -rf "$$home"' EXIT; DAGSTER_HOME="$$home" $(BIN)/dg check defs

matrix: $(READY) ## play the crash matrix on SQLite and PostgreSQL and update its page; ARGS="--all --json" plays SQLite only
	@$(BIN)/python -m receipt_pipeline_tests.chaos.matrix $(ARGS)

simulate: $(READY) ## simulate 1,000 seeds and check every invariant; ARGS="--seeds N" or ARGS="--seed S"
	@$(BIN)/python -m receipt_pipeline_tests.chaos.simulate $(ARGS)

concurrency: $(READY) ## run eight workers over 2,000 jobs on PostgreSQL with kills and a server restart
	@RECEIPTS_TEST_JOBS=2000 $(BIN)/python -m pytest -s receipt_pipeline_tests/chaos/test_many_workers.py

train: $(READY) ## train the shipped risk models and write the releases: make train TEXTS=FOLDER
	@$(BIN)/python -m training.fit $(if $(TEXTS),--texts $(TEXTS)) $(if $(KEPT),--kept $(KEPT)) $(ARGS)

docs: $(READY) ## write the generated pages of docs/
	@$(BIN)/python -m docs.generate

screenshots: $(READY) ## take the pictures of docs/img in headless Chromium
	@$(BIN)/python -m docs.generate.screenshots

bench: $(READY) ## print the performance ratios of this machine
	@$(BIN)/python -m benchmarks

bench-accounting: $(READY) ## print the cost of a report on ledgers of 100,000 and 1,000,000 jobs
	@$(BIN)/python -m benchmarks.accounting

requirements: $(READY) ## count the requirements that passing tests prove, and list the others
	@$(BIN)/python -m receipt_pipeline_tests.requirements_report --reusable $(RESULTS) || $(MAKE) --no-print-directory test || true
	@$(BIN)/python -m receipt_pipeline_tests.requirements_report $(RESULTS)

evaluate: $(READY) ## measure fields and risk on the development scans and write evaluate.json
	@$(BIN)/receipts evaluate

lock: ## resolve the dependencies again (needs uv)
	@trap 'rm -f uv.lock' EXIT; uv lock --python 3.11 && \
	uv export --frozen --all-extras --no-emit-project --no-header -o requirements.lock > /dev/null
