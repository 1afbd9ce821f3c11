# make run: install, train the graph frontier model from nothing, draw its frontier.
# make test: install, then every check and every test.

PYTHON ?= python3
BIN := .venv/bin
# The version that the figures in this repository were made with; pyproject.toml itself takes a range.
TORCH ?= torch==2.13.0

.PHONY: run test setup

run: setup
	run=$$($(BIN)/deepen train graph --preset frontier --seed 1 --resume) && $(BIN)/deepen grid $$run

test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

setup: .venv/installed

.venv/installed: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@
