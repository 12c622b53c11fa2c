# On a fresh clone all of these create .venv first and install the package into it, with
# the versions that were tested: `make demo` compares six algorithms on built-in data,
# `make check` runs in a minute what a change of the round breaks first, `make test` the
# tests but for the slow ones and, of many cases of one kind, all but the first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two processes, each with half of the files; who is done first takes from the other.
# The notebooks' plugin takes longer to import than JAX, in every process.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal -q
TESTS := $(PYTEST) -p no:nbmake
# What tests and notebooks compile is kept, for each other and for the next time.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/$(VENV)/programs
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0

.PHONY: demo check test slow notebooks trackers lint types docs wheel install clean

# The papers' boxes, identities, the generated family, mixing, span engine, server step, and
# one case on two devices; of many cases of one kind, the first.
CHECK := tests/algorithms/test_reference.py tests/properties/test_identities.py \
	tests/properties/test_generated.py tests/gossip/test_mixing.py \
	tests/gossip/test_topology.py tests/optimizers/test_server.py \
	tests/rounds/test_span.py tests/training/test_two_devices.py

check: install
	$(BIN)/ruff check .
	$(TESTS) -m "not slow" $(CHECK)

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(TESTS) -m "not slow"

slow: install
	$(TESTS) -m slow tests

demo: install
	$(BIN)/python -m experiments.compare --dataset=digits --setting=demo --num_seeds=5 \
		--algos=fedavg,fedamsgrad,scaffold,feddyn,afga,cafga --out=runs/demo

notebooks: install
	$(PYTEST) --nbmake notebooks/*.ipynb

# With the packages of the extras, which lie apart: they hold back what others need newer.
trackers: $(VENV)/trackers/installed
	PYTHONPATH=$(CURDIR)/$(VENV)/trackers $(BIN)/python -m pytest -p no:nbmake -q \
		tests/runs/test_trackers.py

lint: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install
	$(BIN)/mypy

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Builds, checks, and tries the wheel where nothing of this folder is: in an environment of
# its own, elsewhere.
wheel: install
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	empty=$$(mktemp -d) && trap 'rm -rf $$empty' EXIT && \
	$(BIN)/python -m venv $$empty && \
	$$empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl && \
	cd $$empty && bin/afga --help && bin/afga digits --algo=afga --rounds=10

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/trackers/installed: $(VENV)/installed
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(@D) \
		wandb==0.31.0 mlflow-skinny==3.17.2
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
