# What people run: `make demo` and `make test`. Both prepare all that they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
HELM    = $$($(BIN)/python -m localfleet.assets helm)
CHART  := out/chart
.DEFAULT_GOAL := help

# Each run starts dozens of programs: without bytecode Python would compile fipop and the tests in every one of them.
export PYTHONDONTWRITEBYTECODE :=

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(VENV)/.ready ## Install the Python environment

fmt: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: chart ## Lint the code and the chart, check types and imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(HELM) lint --strict $(CHART)

# The checks run beside the tests, which wait more than they work. What they say is shown if they fail, at once and last.
test: setup ## Run the checks and all tests but the slow ones (4 minutes on 2 cores)
	@mkdir -p out; { $(MAKE) --no-print-directory check > out/check.log 2>&1 || { cat out/check.log; exit 1; }; } & checks=$$!; \
	$(MAKE) --no-print-directory assets pytest; tests=$$?; \
	wait $$checks || { echo "make check failed: out/check.log has what it said"; exit 1; }; exit $$tests

night: setup ## Run what takes long, one line for each part (90 minutes; PART=name for one, LONG=1 for all there is)
	$(BIN)/python -m localfleet.assets --all
	$(BIN)/python -m tests.night $(if $(LONG),--long) $(PART)

demo: setup ## Show fipop at work on a fleet of this machine (FULL=1 shows more, KEEP=1 leaves it running)
	$(BIN)/python -m localfleet.demo $(if $(FULL),--full) $(if $(KEEP),--keep)

demo-cluster: setup ## Add a guest cluster to the fleet of `make demo KEEP=1` (NAME=x NETWORK=vlan99)
	$(BIN)/python -m localfleet.demo_kept "$(NAME)" "$(or $(NETWORK),vlan10)"

image: ## Build the image with docker, podman or buildah (IMAGE=name:tag, SOURCE=URL of the repository, BUILD_ARGS=…)
	scripts/image.sh build $(IMAGE)

chart: setup ## Copy the helm chart into out/chart
	$(BIN)/python -m localfleet.chart $(CHART)

release: setup assets ## Build and push a release of a clean tree (VERSION=0.1.0 REGISTRY=registry.example/platform)
	scripts/release.sh $(VERSION) $(REGISTRY)

clean: ## Remove what was built in the checkout (not the cache of programs)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache out

# The documentation has these.

assets: setup
	$(BIN)/python -m localfleet.assets

# A control plane of which many run side by side needs one thread of Go; with two it does a fifth more work when it is idle.
# The workers of a fresh checkout would each compile all tests at the same time: one process does that before them.
pytest: setup
	@[ -d tests/__pycache__ ] || $(BIN)/pytest --collect-only --quiet > /dev/null
	GOMAXPROCS=1 $(BIN)/pytest --numprocesses=6 --dist=loadgroup --no-loadscope-reorder --max-worker-restart=0 -m "not slow" --durations=15

wheel: setup
	$(BIN)/python -m build --wheel --no-isolation --outdir out . > /dev/null
	@ls out/*.whl

manifest: chart
	scripts/manifest.sh "$(HELM)" $(CHART) out/fipop.yaml $(VALUES)

manifest-guest:
	scripts/manifest-guest.sh out/fipop-guest.yaml $(or $(IMAGE),fipop:0.1.0)

golden: setup
	$(BIN)/python -m tests.golden.recording

bench: setup assets
	$(BIN)/python -m bench.$(or $(PART),ipam)

.PHONY: help setup fmt check test night demo demo-cluster image chart release clean assets pytest wheel manifest manifest-guest golden bench
