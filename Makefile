# Every command sets up what it needs; nothing has to be typed first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := build/pip-tools
PIP_TOOLS := pip-tools==7.6.2

.DEFAULT_GOAL := help
.PHONY: help setup test bench lint format types demo build requirements clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.outlast ## Make .venv with the pinned requirements and outlast itself (PYTHON=python3.13 picks another Python)

# A fresh environment whenever a pin changes: nothing that is no longer pinned stays behind.
$(VENV)/.requirements: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'outlast needs Python 3.11 or newer; "$(PYTHON)" is older or missing. Try: make setup PYTHON=python3.13' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.outlast: $(VENV)/.requirements pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: setup ## Check the direction of imports, then run all tests (ARGS='-k name' narrows)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest $(ARGS)

lint: setup ## Check style, format and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: setup ## Fix what can be fixed by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## Check types: strict for the library, looser for tests
	$(BIN)/basedpyright

bench: setup ## Measure against a hand-written Temporal workflow: some 15 minutes (ARGS='ten-steps --pairs 20' chooses)
	$(BIN)/python -m benchmarks $(ARGS)

demo: setup ## Run the main job on an embedded Temporal server: no key, no questions when not on a terminal
	$(BIN)/outlast demo

build: setup ## Build the source distribution, and the wheel from it, into dist/
	$(BIN)/python -m build --no-isolation

# Names no index, so the file says nothing about where it was made. Hashes are those of every published file, so it
# serves every platform; no pinned package needs more on a newer Python, so it serves 3.11 to 3.14.
requirements: ## Compile requirements/dev.txt anew from pyproject.toml and requirements/dev.in (ARGS=--upgrade for newer)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_TOOLS)
	CUSTOM_COMPILE_COMMAND='make requirements' $(LOCK_VENV)/bin/pip-compile --quiet $(ARGS) --no-config \
	  --generate-hashes --allow-unsafe --strip-extras --extra server --extra openai \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  --output-file requirements/dev.txt pyproject.toml requirements/dev.in

clean: ## Remove what the other targets made, but for the embedded server's state in .outlast/
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
