# Every target sets up what it needs, on a machine that has only Python 3.11+ and make.
# See `make help`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Written last, so that a set-up which was interrupted is done again.
READY := .venv/.ready
# Spark without what only delays its drivers' start.
SPARK := .venv/spark
WITH_SPARK = SPARK_HOME='$(CURDIR)/$(SPARK)'
# Spark's classes as Java has parsed them: its drivers start in half the time. Without it they start all the same.
ARCHIVE := .venv/spark.jsa
# The same of Kafka's.
KAFKA_ARCHIVE := .jars/kafka-broker/classes.jsa

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Modules are compiled once, also where the machine says otherwise: dozens of drivers are started.
export PYTHONDONTWRITEBYTECODE :=
# Output appears as it happens, also through a pipe.
export PYTHONUNBUFFERED := 1

demo test soak: export SPARK_SUBMIT_OPTS := -XX:SharedArchiveFile=$(CURDIR)/$(ARCHIVE) -Xshare:auto
# For drivers that live for seconds: what the second compiler would make is never used.
test soak: export SPARK_SUBMIT_OPTS += -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
test soak: export SPARK_LAUNCHER_OPTS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

.PHONY: help demo test check docs bench soak mutants kafka clean java servers jars

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) java $(ARCHIVE) ## Watch a job crash and lose nothing
	@$(WITH_SPARK) $(BIN)/onceward demo

test: check $(READY) java servers $(ARCHIVE) ## Run the checks, then every test but the soak
	@# Much of the time a test waits for a server or a process of its own: so two more than there are cores.
	@$(WITH_SPARK) $(BIN)/pytest -n 4

check: $(READY) ## Lint, format, types, import rules and the pages
	@$(BIN)/ruff check --quiet --output-format=concise
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/build-docs

docs: $(READY) ## Make the site, in build/site
	@$(BIN)/python tools/build-docs && echo "open build/site/index.html"

bench: $(READY) java servers jars ## Measure the speed
	@$(BIN)/python -m benchmarks

soak: $(READY) java servers $(ARCHIVE) ## Run for a long time under random crashes
	@$(WITH_SPARK) ONCEWARD_SOAK=1 $(BIN)/pytest -m soak

mutants: $(READY) ## Take each rule out of the code and see a test fail
	@cd tests && ../$(BIN)/python -m mutants

kafka: $(READY) java .jars/kafka-broker/.ready ## Run a Kafka broker to try things with, until Ctrl-C
	@$(BIN)/python tools/run-kafka

clean: ## Remove .venv, caches and build output
	@rm -rf .venv .jars .flink .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@tools/setup-java

$(SPARK)/.ready: $(READY) tools/setup-spark
	@tools/setup-spark $(SPARK)

$(ARCHIVE): $(SPARK)/.ready tools/archive-spark | java
	@echo "Preparing Spark's classes, once ..."
	@$(WITH_SPARK) $(BIN)/python tools/archive-spark $@ >/dev/null 2>&1 || true
	@touch $@

$(KAFKA_ARCHIVE): $(READY) .jars/kafka-broker/.ready tools/archive-kafka | java
	@rm -f $@
	@$(BIN)/python tools/archive-kafka $@ >/dev/null 2>&1 || true

servers: .jars/kafka-broker/.ready $(KAFKA_ARCHIVE)
	@tools/setup-servers

# Not made where there is no Maven: then the tests that need the broker are skipped.
.jars/kafka-broker/.ready: tools/jars/kafka-broker.xml tools/jars/kafka-connector.xml \
		tools/jars/mysql-server.xml tools/setup-maven-servers
	@tools/setup-maven-servers

jars: .jars/.ready

.jars/.ready: tools/jars/pom.xml tools/setup-jars
	@tools/setup-jars

$(READY): pyproject.toml tools/setup-venv
	@tools/setup-venv
	@touch $@
