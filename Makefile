# make demo    train on the built-in six-view data set, evaluate, draw the result
# make test    create the environment and run all tests
# make fast    run all tests except the slow ones
# make cover   run the fast tests and measure their line coverage, which takes 1.5 times as long
# make lint    run ruff, mypy and hadolint, and check the imports between layers
# make docs    build the documentation in docs/_build/html; warnings are errors
# make dist    build sdist and wheel in dist, and run the README's programs with only the wheel installed
# make lowest  run the fast tests with the lowest versions that pyproject.toml allows, except for torch
# make fuzz    run the random tests, for a few minutes
# make bench   run the benchmarks
# make clean   remove the environments and all built files
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check -c constraints.txt
ALL = $(VENV)/.installed-test,train,dev,docs

FUZZ ?=

.PHONY: fuzz demo test fast cover lint docs dist lowest bench clean

# One marker file per set of extras: an install is repeated only if the requirements change. Development requires all
# extras of ALL in one install. Modules are compiled on all cores, because pip uses one core, and rarely imported
# folders are excluded.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python $(PIP_INSTALL) --no-compile -e '.[$*]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|models)/' $(VENV)/lib || true  # some packages contain templates
	@touch $@

demo: $(VENV)/.installed-train
	$(BIN)/m3g demo

# One thread per worker, because more do not speed up small tensors, and workers would compete for the cores. Idle
# workers take over tests of others. There is one worker more than cores, but at most four, because tests also wait for
# the processes that they start.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(ALL)
	$(PYTEST)

fast: $(ALL)
	$(PYTEST) -m "not slow"

cover: $(ALL)
	$(PYTEST) -m "not slow" --cov --cov-report=term

lint: $(ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

docs: $(ALL)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# The programs run in the folder of the empty environment, so that they import the installed package.
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

# Tests random problems against a slow reference, killed processes, damaged files and malicious input. It takes a few
# minutes. For longer runs use make fuzz FUZZ='--problems 20000 --kills 100 --damage 100'
fuzz: $(ALL)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz $(FUZZ)
