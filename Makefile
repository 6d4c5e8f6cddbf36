# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DAGSTER_HOME ?= $(CURDIR)/.dagster
export DAGSTER_HOME
# The files of tests are spread over the cores, in the order of tests/conftest.py. Those of `test-all` wait for each other's
# processes half of the time, so there are twice as many.
PARALLEL := --maxprocesses 8 --dist loadgroup --no-loadscope-reorder
TWICE    := $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
# Compiled modules are kept, whatever the environment says: each of the many processes would compile them anew.
KEPT := PYTHONDONTWRITEBYTECODE=
# What a person of Dagster types after `make setup`: its older command reads no project file.
define NEXT
printf '%s\n' "Ready. One shard with Dagster's own commands:" \
	"  $(BIN)/dg launch --assets '*' --partition shard_01" \
	"  $(BIN)/dagster asset materialize --select '*' --partition shard_01 -m definitions"
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo ui test test-all check dist lock lock-recipes clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/'

setup: $(VENV)/.installed $(if $(GPU),$(VENV)/.installed_gpu) .env ## Virtual environment, language data, Dagster's home; GPU=1 adds torch and vLLM
	@$(BIN)/python deploy/local/instance.py
	@deploy/tessdata.sh $(BIN)/python
	$(if $(filter setup,$(MAKECMDGOALS)),@$(NEXT))

demo: setup ## Build all assets from the samples (or your indexed corpus) and show what was made
	@$(BIN)/kopub run
	@$(BIN)/kopub status

ui: setup ## The Dagster UI on http://127.0.0.1:3000
	@$(BIN)/kopub ui

test: setup ## Every promise once, in minutes; those of the GPU engines when torch is installed
	$(KEPT) $(BIN)/python -m pytest $(PARALLEL) --numprocesses logical \
		-m "smoke or not (slow or services or browser or vllm or gpu)"

test-all: setup ## All tests: kills, daemons, browsers, servers, real models, extras, as far as they are installed
	$(KEPT) $(BIN)/python -m pytest $(PARALLEL) --numprocesses $(TWICE)

# Pyright finds the package whose types it verifies by PYTHONPATH, not by the editable install.
check: setup ## Lint, types, layers, dependencies, locked recipes, signs of how code reads, and that the definitions load
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	PYTHONPATH=$(CURDIR) $(BIN)/pyright --pythonpath $(BIN)/python --verifytypes kopub.api --ignoreexternal
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/deptry kopub kopub_assets resources
	$(BIN)/python -m tools.recipes_lock && $(BIN)/python -m tools.settings_doc --check
	$(BIN)/python -m tools.signs
	$(BIN)/dagster definitions validate
	$(BIN)/dg check defs && $(BIN)/dg check toml

lock-recipes: ## Lock the code behind every version as it is, where results did not change
	$(BIN)/python -m tools.recipes_lock --write
	$(BIN)/python -m tools.settings_doc

# The wheel is built from the source archive, so that proves to be whole.
DIST ?= dist
dist: setup ## What a release publishes: both wheels and the source archive, checked as the package index checks them
	$(BIN)/uv build --quiet --out-dir $(DIST)
	$(BIN)/python -m tools.tessdata_wheel --out $(DIST)
	$(BIN)/uvx twine==7.0.0 check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

lock: setup ## Resolve requirements.lock anew from pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.11.5 --all-extras --group dev --no-header --no-annotate \
		pyproject.toml -o requirements.lock

clean: ## Remove the virtual environment and Dagster's history; tables and releases stay
	rm -rf $(VENV) .dagster .env

$(VENV)/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' \
		|| { echo "Python 3.11.5 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing the locked packages into $(VENV), 2 GB on disk: 1 to 4 minutes"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@deploy/pip.sh $(BIN)/python --constraint requirements.lock --editable '.[eval]' --group dev
	@touch $@

$(VENV)/.installed_gpu: $(VENV)/.installed
	@deploy/gpu.sh $(BIN)/python
	@touch $@

# Commands started without make find the same history; an exported DAGSTER_HOME takes precedence.
.env: kopub/data/dagster.yaml | $(VENV)/.installed
	@mkdir -p .dagster
	@[ -e .dagster/dagster.yaml ] || ln -s ../kopub/data/dagster.yaml .dagster/dagster.yaml || [ -e .dagster/dagster.yaml ]
	@echo 'DAGSTER_HOME=$${DAGSTER_HOME:-$(CURDIR)/.dagster}' > $@
