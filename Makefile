# make demo    train on the embedded six-view data set, evaluate, draw the result
# make test    set everything up, run every test, print the coverage
# make fast    the tests without the slow ones
# make lint    ruff, mypy, the contract between layers, hadolint
# make docs    the documentation, in docs/_build/html; a warning is an error
# make dist    sdist and wheel in dist, the wheel installed alone and the README's programs run with it
# make lowest  the fast tests with the lowest version that pyproject.toml allows of everything but torch
# make bench, make clean
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
ALL = $(VENV)/.installed-test,train,dev,docs

FUZZ ?=

.PHONY: fuzz demo test fast lint docs dist lowest bench clean

# One marker file per set of extras: an install is repeated only when the requirements change. Whoever works on the
# package needs all of ALL, in one install. pip would compile every module on one core; what few imports need is left out.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(PIP_INSTALL) --no-compile -e '.[$*]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|models)/' $(VENV)/lib || true  # some packages hold templates
	@touch $@

demo: $(VENV)/.installed-train
	$(BIN)/m3g demo

# One thread per worker: small tensors gain nothing from more, and the workers would compete for the cores. A worker
# that has done its tests takes over some of another's. One worker more than cores, because tests also wait for the
# processes they start.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(ALL)
	$(PYTEST) --cov --cov-report=term

fast: $(ALL)
	$(PYTEST) -m "not slow"

lint: $(ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

docs: $(ALL)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# The programs run in the empty environment's folder, where no source of the package can be imported instead.
EMPTY = build/empty
dist: | $(BIN)/python
	rm -rf dist build
	$(BIN)/python $(PIP_INSTALL) build
	$(BIN)/python -m build
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python $(PIP_INSTALL) dist/*.whl
	cd $(EMPTY) && bin/python -W error $(CURDIR)/.ci/readme.py $(CURDIR)/README.md

lowest: VENV = .venv-lowest
lowest:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP_INSTALL) --no-deps -e .
	$(BIN)/python .ci/lowest.py > $(VENV)/lowest.txt
	$(BIN)/python $(PIP_INSTALL) -c $(VENV)/lowest.txt -e '.[test,train]'
	$(PYTEST) -m "not slow"

bench: $(VENV)/.installed-bench,train
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv-lowest $(VENV) build dist docs/_build .pytest_cache .hypothesis .coverage

# Random problems against a slow reference, kills, damage and hostile input: a few minutes. More with
# make fuzz FUZZ='--problems 20000 --kills 100 --damage 100'
fuzz: $(ALL)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz $(FUZZ)
