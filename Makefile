# Every target sets up what it needs, on a machine that has only Python 3.11+ and make.
# See `make help`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Written last, so that a set-up which was interrupted is done again.
READY := .venv/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Output appears as it happens, also through a pipe.
export PYTHONUNBUFFERED := 1

.PHONY: help demo test check bench soak kafka clean java servers jars

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) java ## Watch a job crash and lose nothing
	@$(BIN)/onceward demo

test: check $(READY) java servers ## Run the checks, then every test but the soak
	@$(BIN)/pytest -n 2 --dist loadfile

check: $(READY) ## Lint, format, types and import rules
	@$(BIN)/ruff check --quiet --output-format=concise
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(READY) java servers jars ## Measure the speed
	@$(BIN)/python -m benchmarks

soak: $(READY) java servers ## Run for a long time under random crashes
	@ONCEWARD_SOAK=1 $(BIN)/pytest -m soak

kafka: $(READY) java .jars/kafka-broker/.ready ## Run a Kafka broker to try things with, until Ctrl-C
	@$(BIN)/python tools/run-kafka

clean: ## Remove .venv, caches and build output
	@rm -rf .venv .jars .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@tools/setup-java

servers: .jars/kafka-broker/.ready
	@tools/setup-servers

# Not made where there is no Maven: then the tests that need the broker are skipped.
.jars/kafka-broker/.ready: tools/jars/kafka-broker.xml tools/jars/kafka-connector.xml tools/setup-kafka
	@tools/setup-kafka

jars: .jars/.ready

.jars/.ready: tools/jars/pom.xml tools/setup-jars
	@tools/setup-jars

$(READY): pyproject.toml tools/setup-venv
	@tools/setup-venv
	@touch $@
