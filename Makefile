# `make` lists the targets. A fresh machine needs Python 3.11, make and PyPI; what is installed goes to .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# One stamp for each set of extras in the one environment. `dev` includes `cli`, so it serves the demo as well.
DEV := $(VENV)/.dev
CLI := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.cli)

.PHONY: help setup demo test lint proto contract native bench self-test nightly clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(DEV) ## Install everything for development into .venv

demo: $(CLI) ## Start a service, prepare a model on it and classify handwritten digits
	@$(BIN)/nnhal demo

test: $(DEV) ## Run the tests
	$(BIN)/python -m pytest -n 2

lint: $(DEV) ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

proto: $(DEV) ## Make the Python code of the contract again
	$(BIN)/python -m tools.generate

contract: $(DEV) ## Compare the contract with the last release
	$(BIN)/python -m tools.contract_check

bench: $(DEV) ## Measure
	$(BIN)/python -m tools.benchmark.server_kinds --quick
	$(BIN)/python -m tools.benchmark.paths --quick
	$(BIN)/python -m tools.benchmark.payloads --quick
	$(BIN)/python -m tools.benchmark.warm_start --quick
	$(BIN)/python -m tests.benchmark.cpu_ref
	$(BIN)/python -m tests.benchmark.cpu_acc
	$(BIN)/python -m tests.benchmark.sustained
	$(BIN)/python -m tests.benchmark.preparing
	$(BIN)/python -m tests.benchmark.partition_cost

native: ## Build the example of a native backend into build/native
	@mkdir -p build/native
	$(CC) -std=c99 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -I driver/backends/native \
		driver/backends/native/example/Example_Simple_backend.c -o build/native/Example_Simple_backend.so

self-test: $(DEV) ## Show that the conformance harness catches faults
	$(BIN)/nnhal conformance --self-test

# What a change is spared: long fuzzing and soaking, many kills, every check on every vector (the vectors lie beside the project).
nightly: export NNHAL_FUZZ_EXAMPLES = 20000
nightly: export NNHAL_KILLS = 300
nightly: export NNHAL_SOAK_S = 300
nightly: test self-test bench ## Everything that is too slow for each change
	$(BIN)/nnhal conformance --strict --vectors ../shared/vectors --jobs 2 --junit build/conformance.xml --html build/conformance.html
	$(BIN)/nnhal conformance --vectors ../shared/vectors --jobs 2 --suite generated --backends-path tests/driver/backends/repackaged --backend Repackaged

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is made and filled in one recipe, so that one which was interrupted is simply done again.
$(VENV)/.%: pyproject.toml
	@echo "Setting up $(VENV) for '$*' (once; a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
