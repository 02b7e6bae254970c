# make demo    train on the embedded six-view data set, evaluate, draw the result
# make test    set everything up and run every test
# make fast    the tests without the slow ones
# make lint, make bench, make docs, make clean
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test fast lint bench docs clean

# One marker file per set of extras: an install is repeated only when the requirements change.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[$*]'
	@touch $@

demo: $(VENV)/.installed-train
	$(BIN)/m3g demo

# One thread per worker: small tensors gain nothing from more, and the workers would fight for the cores.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4

test: $(VENV)/.installed-test,train
	$(BIN)/lint-imports
	$(PYTEST)

fast: $(VENV)/.installed-test,train
	$(PYTEST) -m "not slow"

lint: $(VENV)/.installed-test,train,dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-bench,train
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed-docs,train
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .hypothesis
