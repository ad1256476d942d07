# What people run: `make demo` and `make test`. Both prepare all that they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
.DEFAULT_GOAL := help

# Each run starts dozens of programs: without bytecode Python would compile fipop and the tests in every one of them.
export PYTHONDONTWRITEBYTECODE :=

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.ready: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.ready ## Install the Python environment

fmt: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check-fast: setup ## Lint, types and import contracts: seconds once mypy is warm
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: check-fast ## The same, and the chart

clean: ## Remove what the build left in the checkout (not the cache)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache out

.PHONY: help setup fmt check-fast check clean

check: lint-chart

lint-chart: setup ## Lint the helm chart (helm is built where it is missing)
	helm=$$($(BIN)/python -m localfleet.assets helm) && $$helm lint --strict .

manifest: setup ## Render everything into out/fipop.yaml, for kubectl apply -f (VALUES="--set image.repository=…")
	helm=$$($(BIN)/python -m localfleet.assets helm) && scripts/manifest.sh "$$helm" out/fipop.yaml $(VALUES)

manifest-guest: ## Render the cloud provider of one cluster into out/fipop-guest.yaml (IMAGE=name:tag)
	scripts/manifest-guest.sh out/fipop-guest.yaml $(or $(IMAGE),fipop:0.1.0)

image: ## Build the image with docker, podman or buildah (IMAGE=name:tag, BUILD_ARGS=…)
	scripts/image.sh $(IMAGE)

.PHONY: lint-chart manifest manifest-guest image

assets: setup ## Build the programs of the local fleet into the user's cache, where they are missing
	$(BIN)/python -m localfleet.assets

wheel: setup ## Build the command line as a wheel into out/, for pipx install
	$(BIN)/python -m build --wheel --no-isolation --outdir out . > /dev/null
	@ls out/*.whl

.PHONY: assets wheel

SBOM := $(VENV)/sbom
BASES ?= bases.toml

$(SBOM)/.ready: requirements-sbom.txt | $(VENV)/.ready
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-sbom.txt
	@touch $@

update-bases: setup ## Resolve the digests of the base images at their registries and write them (BASES=bases.toml)
	$(BIN)/python -m scripts.release_bases --file $(BASES)

release: setup $(SBOM)/.ready ## Build and push a release of a clean tree (VERSION=0.1.0 REGISTRY=registry.example/platform)
	$(BIN)/python -m scripts.release --version "$(VERSION)" --registry "$(REGISTRY)" --bases $(BASES) \
		--sbom-python $(SBOM)/bin/python

test-release: setup assets $(SBOM)/.ready ## Release twice into a registry of this machine and compare (about 20 minutes, as root)
	$(BIN)/pytest -o timeout=5400 -o faulthandler_timeout=0 tests/release/whole_release.py

.PHONY: update-bases release test-release

demo: setup ## Show fipop at work on a fleet of this machine (KEEP=1 leaves it running)
	$(BIN)/python -m localfleet.demo $(if $(KEEP),--keep)

.PHONY: demo

PYTEST := $(BIN)/pytest --numprocesses=5 --dist=loadgroup --no-loadscope-reorder --max-worker-restart=0

# A bit more than the longest timeout of a slow test: after it the process of a test ends, whatever hangs in it.
SLOWEST_SECONDS := 1830

# Checks leave a core idle that builds can use, the first time.
test: setup ## Run the checks and all tests but the slow ones (under 8 minutes on 2 cores)
	$(MAKE) --jobs=2 check assets
	$(PYTEST) -m "not slow" --durations=15

test-slow: setup assets ## Run the slow tests and fresh examples (under 25 minutes on 2 cores)
	$(PYTEST) -m slow --durations=15 --override-ini=faulthandler_timeout=$(SLOWEST_SECONDS)
	$(PYTEST) -m "hypothesis and not slow" --hypothesis-profile=fresh tests/unit tests/scenarios

test-fast: setup ## Run the unit tests and the scenarios in memory (about a minute)
	$(BIN)/pytest --numprocesses=2 --dist=loadgroup --no-loadscope-reorder -m "not slow" tests/unit tests/scenarios tests/operator tests/provider tests/harness tests/golden/test_golden.py

golden: setup ## Record anew what fipop does in public; the commit names the reason of each difference (NAMES=…)
	$(BIN)/python -m tests.golden --update $(NAMES)

.PHONY: test test-slow test-fast golden

matrix: setup ## Run the API tests on the oldest and the newest Kubernetes, and record the result (VERSIONS="1.30 1.37")
	$(BIN)/python -m tests.matrix $(VERSIONS)

.PHONY: matrix

bench: setup ## Measure the IPAM core beside netaddr and ipaddress; writes bench/RESULTS.md
	$(BIN)/python -m bench.ipam

bench-fleet: setup assets ## Measure bursts, new guests, passes and starts with up to 2,000 simulated guests; writes bench/RESULTS.md
	$(BIN)/python -m bench.fleet

bench-look: setup assets ## Measure the command line and the page with 10,000 floating IPs; writes bench/RESULTS.md
	$(BIN)/python -m bench.look

bench-services: setup assets ## Measure the cloud provider with 3,000 Services on a real API server; writes bench/RESULTS.md
	$(BIN)/python -m bench.services

.PHONY: bench bench-fleet bench-look bench-services

faults: setup assets ## Disturb the operator in some 800 ways and judge every revision (under 45 minutes on 2 cores)
	$(BIN)/python -m tests.faults.rollouts & rollouts=$$!; \
	$(BIN)/python -m tests.faults; plans=$$?; \
	wait $$rollouts && exit $$plans

rollouts: setup assets ## Roll changes out over 200 guests, 5 of them real, past killed leaders and other harm (about 10 minutes)
	FIPOP_ROLLOUT_SIMULATED=195 FIPOP_ROLLOUT_REAL=5 $(BIN)/pytest --numprocesses=0 tests/api/test_rollout_fleet.py

faults-rollouts: setup assets ## The part of make faults that is about rollouts: the leader is killed at its writes, in 24 ways
	$(BIN)/python -m tests.faults.rollouts

faults-services: setup ## Disturb several cloud providers at once in some 160 ways and judge every revision (about 10 minutes)
	$(BIN)/python -m tests.faults.services

simulation: setup ## Assign 1,000,000 addresses in memory in interleavings chosen by Hypothesis, and live 300 lives of providers
	$(BIN)/python -m tests.provider.simulation 300
	$(BIN)/python -m tests.scenarios.simulation 1000000

hostile: setup assets ## Have hostile guests of 122 kinds beside 200 well-behaved ones, and hostile Services of 64, watched from outside (20 to 40 minutes)
	$(BIN)/python -m tests.hostile

hostile-services: setup assets ## The part of make hostile that is about the cloud provider: hostile Services of 64 kinds (under 10 minutes)
	$(BIN)/python -m tests.hostile --services

.PHONY: faults faults-rollouts faults-services rollouts simulation hostile hostile-services
