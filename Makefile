# On a fresh clone both create .venv and install the package: `make demo` compares three
# algorithms on built-in data, `make test` runs the tests but for the slow ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test slow lint install clean

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 -q -m "not slow"

slow: install
	$(BIN)/python -m pytest -n 2 -q -m slow

demo: install
	$(BIN)/python -m experiments.compare --dataset=digits --algos=fedamsgrad,afga,cafga --num_seeds=3 --out=runs/demo

lint: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
