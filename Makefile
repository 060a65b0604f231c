# `make help` lists the targets. Everything is set up on first use: .venv here, jars in the user's cache.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
KILLS ?= 1000
SEEDS ?= 10000

.DEFAULT_GOAL := help
.PHONY: help setup cluster-tools cluster demo test test-connectors test-unit test-simulation test-integration test-faults test-cluster \
	test-full lint format soak mutants bench bench-operator bench-monitor bench-network requirements build clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## install everything the other targets need (they do it themselves)

$(VENV)/.ready: requirements/dev.txt pyproject.toml scripts/set_up.py spark_apps/exactlyonce_spark/jars.lock testbed/kafka-broker.lock testbed/kcl.lock
	@$(PYTHON) scripts/set_up.py

cluster-tools: setup ## what the tests on a real Kubernetes need (Debian, root, Go): packages, programs, images; once
	@$(RUN) -m testbed.cluster_tools

cluster: cluster-tools ## a real Kubernetes of two nodes, with kubectl and helm, until Ctrl-C
	@$(RUN) -m testbed

demo: setup ## 200,000 orders from Kafka to Postgres while drivers are killed; fails if one is lost or doubled; SOURCE=kinesis, SINK=files
	@$(RUN) -m demo $(if $(SOURCE),--source $(SOURCE)) $(if $(SINK),--sink $(SINK))

test: setup ## lint, unit tests, Kafka to Postgres and files through faults, one life of a stream on a cluster; 20 minutes
	@$(RUN) -m scripts.run_parts --suite core lint unit simulation integration+faults+cluster

test-connectors: setup ## all other tests, in 50 minutes, or one suite of them: NAME=kinesis, doris, cluster, … (tests/suites.py)
	@$(RUN) -m scripts.run_parts $(foreach suite,$(or $(NAME),connectors),--suite $(suite))

test-unit: setup ## tests without servers; seconds
	@$(RUN) -m scripts.run_parts unit

test-simulation: setup ## the protocol under 10,000 random schedules (SEEDS=…), and broken on purpose
	@SEEDS=$(SEEDS) $(RUN) -m scripts.run_parts simulation

test-integration: setup ## real Kafka, Postgres and Spark
	@$(RUN) -m scripts.run_parts integration

test-faults: setup ## kills at named points and at random, frozen writers, cut connections
	@$(RUN) -m scripts.run_parts faults

test-cluster: cluster-tools ## a real Kubernetes of two nodes; skipped, with the reason, where this machine cannot have one
	@$(RUN) -m scripts.run_parts cluster

test-full: cluster-tools ## every crash point in every mode, more seeds and kills; keeps its report in docs/reports/
	@$(RUN) scripts/full_report.py

lint: setup ## ruff, mypy and the borders between the packages
	@$(RUN) -m scripts.run_parts lint

format: setup ## format the code
	@$(VENV)/bin/ruff check --quiet --fix . ; $(VENV)/bin/ruff format .

soak: setup ## KILLS=1000 drivers, loops and databases struck, failovers among it, counting ids; with REPORT=… in several sittings
	@$(RUN) -m tests.soak --kills $(KILLS) $(if $(REPORT),--report $(REPORT))

mutants: setup ## SAMPLE=200 wrong changes of the core (SEED=…), against unit tests and the simulation; prints what survives
	@$(RUN) -m scripts.mutants

bench: setup ## rows per second, milliseconds per batch and per restart, against what people do today, what Kinesis allows and what Doris takes
	@$(RUN) -m bench.pipeline
	@$(RUN) -m bench.folders
	@$(RUN) -m bench.kinesis
	@$(RUN) -m bench.kinesis_and_kafka
	@$(RUN) -m bench.doris

bench-operator: cluster-tools ## what a launch by the operator takes, on a cluster without nodes, against its goals
	@$(RUN) -m bench.operator

bench-monitor: setup ## what measuring 1,000 streams takes, with one client per store and with one per stream
	@$(RUN) -m bench.monitor

bench-network: setup ## what encrypting Spark's own network takes
	@$(RUN) -m bench.network

requirements: setup ## update the pinned requirements (needs uv)
	@sh scripts/pin_requirements.sh

build: setup ## the wheel and the source distribution, in dist/
	@$(RUN) -m build --no-isolation

clean: ## remove what the targets made in this folder
	rm -rf $(VENV) build dist bench/out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage
