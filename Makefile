# `make` lists the targets. A fresh machine needs Python 3.11, make and PyPI. Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Tests also wait, so two cores serve three workers. Each begins with a part of the tests, and then takes over others'.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal

# Without compiled modules, each of the hundreds of processes that tests start would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

# A stamp for each set of extras in the environment. `dev` includes `cli`, so it also serves the demo.
DEV := $(VENV)/.dev
CLI := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.cli)

# Ray is large, and few need it: it has an environment of its own, which uses the packages of .venv.
RAY := build/ray/bin

# Tests of everything that calls: clients, the service's part between gRPC and the driver, and what it reads in a trace.
CALL_TESTS := tests/nnhal tests/service/grpc_support tests/end_to_end/clients tests/end_to_end/service/test_failed_handshakes.py

.PHONY: help setup demo fleet-demo test test-fleet test-triton test-all test-versions test-plain-grpc test-nightly lint lint-systems proto contract site release release-rootfs native bench self-test nightly clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(DEV) ## Install everything for development into .venv

demo: $(CLI) ## Start a service, prepare a model on it and classify handwritten digits
	@$(BIN)/nnhal demo

test: $(DEV) ## Run the tests, except the slow ones: at most 5 minutes on two idle cores
	$(PYTEST) -m "not slow and not nightly"

test-all: $(DEV) ## Run all tests that CI runs
	$(PYTEST) -m "not nightly"

test-versions: build/oldest/.packages build/newest/.packages ## Run the tests of calls with the oldest and the newest grpcio, protobuf and numpy
	build/oldest/bin/python -m pytest -q -n 2 -m "not slow and not nightly" $(CALL_TESTS)
	build/newest/bin/python -m pytest -q -n 2 -m "not slow and not nightly" $(CALL_TESTS)

test-plain-grpc: $(DEV) ## Run the tests of calls without private parts of grpcio
	NNHAL_PLAIN_GRPC=1 $(PYTEST) -q -m "not nightly" $(CALL_TESTS)

test-nightly: $(DEV) ## Run all tests
	$(PYTEST)

lint: $(DEV) ## Check style, types, the direction of imports, and the contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory lint-systems
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint proto

lint-systems: $(DEV) ## Check the types of the client on Windows and macOS
	$(BIN)/mypy --config-file tools/dev/mypy-client.ini --platform win32
	$(BIN)/mypy --config-file tools/dev/mypy-client.ini --platform darwin

proto: $(DEV) ## Generate the Python code of the contract
	$(BIN)/python -m tools.dev.generate

contract: $(DEV) ## Compare the contract with the last release
	$(BIN)/buf breaking proto --against proto/released/v1.binpb

site: $(DEV) ## Build the documentation in build/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file tools/dev/site/mkdocs.yml

release: $(DEV) ## Build the files of a release in dist, and check them
	$(BIN)/python -m tools.dev.release

release-rootfs: $(DEV) ## Add the root file system of the container image; needs root, debootstrap, buildah and bubblewrap
	$(BIN)/python -m tools.dev.release_rootfs

bench: $(DEV) ## Run the benchmarks
	$(BIN)/python -m tests.benchmark.paths --quick
	$(BIN)/python -m tests.benchmark.payloads --quick
	$(BIN)/python -m tests.benchmark.c_library --quick
	$(BIN)/python -m tests.benchmark.large --quick
	$(BIN)/python -m tests.benchmark.warm_start --quick
	$(BIN)/python -m tests.benchmark.cpu_ref
	$(BIN)/python -m tests.benchmark.cpu_acc
	$(BIN)/python -m tests.benchmark.models
	$(BIN)/python -m tests.benchmark.two_clients --quick
	$(BIN)/python -m tests.benchmark.preparing

native: ## Build the example of a native backend in build/native
	@mkdir -p build/native
	$(CC) -std=c99 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -I driver/nnhal_driver/backends/native \
		driver/nnhal_driver/backends/native/example/Example_Simple_backend.c -o build/native/Example_Simple_backend.so

fleet-demo: $(RAY)/.fleet ## Kill one host of a fleet under load, and draw the latency
	$(RAY)/python -m tests.benchmark.fleet

test-fleet: $(RAY)/.fleet ## Run the tests with Ray that CI runs
	$(RAY)/python -m pytest -m "not nightly" tests/fleet/test_ray.py tests/nnhal/client/test_fleet.py

test-triton: build/triton/.packages ## Run the tests with Triton's client, in an environment of its own: its protobuf is older
	$(BIN)/python -m pytest -n 0 tests/end_to_end/names/test_triton.py

self-test: $(DEV) ## Show that the conformance harness catches faults
	$(BIN)/nnhal conformance --self-test

# Long fuzzing and soaking, many kills, and every check on every vector of ../shared. Models are mutated once for each
# signature of operations and types: 140,000 mutations and 420,000 calls, instead of 520,000 and 1,560,000 of all.
nightly: export NNHAL_FUZZ_EXAMPLES = 20000
nightly: export NNHAL_KILLS = 300
nightly: export NNHAL_SOAK_S = 300
nightly: test-nightly test-versions test-plain-grpc self-test bench $(RAY)/.fleet ## Everything that takes too long for each change
	$(RAY)/python -m pytest tests/fleet tests/nnhal/client/test_fleet.py
	$(BIN)/nnhal conformance --strict --exclude validation --vectors ../shared/vectors --jobs 2 --junit build/conformance.xml --html build/conformance.html
	$(BIN)/nnhal conformance --suite validation --sample 1 --vectors ../shared/vectors --jobs 2
	$(BIN)/nnhal conformance --vectors ../shared/vectors --jobs 2 --suite generated --backends-path examples/backends/reference --backend DynamicCpuRef
	$(BIN)/nnhal conformance --vectors ../shared/vectors --jobs 2 --suite generated --path NDK
	$(BIN)/nnhal conformance --vectors ../shared/vectors --jobs 2 --suite generated --path NDK --backend CpuRef

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf examples/node/node_modules examples/cpp/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One recipe creates and fills the environment, so that an interrupted setup is repeated as a whole.
$(VENV)/.%: pyproject.toml
	@echo "Setting up $(VENV) for '$*' (once; a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# $(call nested_environment,FOLDER): an environment that uses the packages of .venv after its own.
define nested_environment
	@echo "Setting up $(1) (once; a few seconds)"
	@$(BIN)/python -m venv --clear --without-pip $(1)
	@$(BIN)/python -c 'from sysconfig import get_path; print("import site; site.addsitedir(%r)" % get_path("purelib"))' \
		>"$$($(1)/bin/python -c 'from sysconfig import get_path; print(get_path("purelib"))')/nnhal.pth"
endef

INSTALL_NESTED := install --quiet --disable-pip-version-check --no-compile

$(RAY)/.fleet: $(DEV)
	$(call nested_environment,build/ray)
	@$(BIN)/python -m pip --python build/ray/bin/python $(INSTALL_NESTED) 'nnhal[fleet]'
	@touch $@

build/triton/.packages: $(DEV)
	@$(BIN)/python -m venv --clear build/triton
	@build/triton/bin/python -m pip $(INSTALL_NESTED) 'tritonclient[grpc,http]'
	@touch $@

# What pyproject.toml demands of these packages; the oldest one is the lower bound itself.
PACKAGES := python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"], *(text for text in project["optional-dependencies"]["server"] if "grpcio-" in text), sep="\n")'

build/oldest/.packages: EXACT := s/>=([^,]*).*/==\1/
build/oldest/.packages build/newest/.packages: build/%/.packages: $(DEV)
	$(call nested_environment,build/$*)
	@$(BIN)/$(PACKAGES) | sed -E '$(EXACT)' >build/$*/requirements.txt
	@$(BIN)/python -m pip --python build/$*/bin/python $(INSTALL_NESTED) --no-deps --ignore-installed -r build/$*/requirements.txt
	@touch $@
