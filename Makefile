# `make help` lists the targets. setup, demo, test, bench and clean need root (sudo make ...); test-fast and lint do not.

BIN := .venv/bin
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup venv demo test test-fast test-qemu lint bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make this machine ready: packages, .venv, Docker engine, container image
	@setup/setup.sh

venv:
	@setup/venv.sh

demo: setup ## run the demo: a small Tor network with same-key onion services, and a report
	$(BIN)/testbed run onion_load --topology topologies/demo.yaml --param instances=1,3 --param seconds=8s

test: setup ## every test
	$(BIN)/pytest tests $(PYTEST_ARGS)

test-qemu: setup ## the tests of links again, under a distribution kernel in QEMU, if that is installed; minutes
	TESTBED_QEMU=1 $(BIN)/pytest tests/vm/test_links_in_qemu.py $(PYTEST_ARGS)

test-fast: venv ## the tests that need neither root nor Docker nor tor nor a virtual machine
	$(BIN)/pytest tests -n auto --dist worksteal -m "not root and not engine and not tor and not vm" $(PYTEST_ARGS)

lint: venv ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## the benchmarks; prints one JSON object a line, with the target beside the value
	$(BIN)/python -m bench all

clean: ## take labs down; remove .venv, caches and the container image; keep runs, packages and the engine
	@setup/clean.sh
