# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# One thread per test worker: two workers with two OpenMP threads each slow each other down tenfold.
WORKERS ?= auto

.PHONY: help install weights demo exact-demo app test lint typecheck unit format

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv and install everything, pinned

$(VENV)/.installed: requirements.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -e '.[dev,app,diffusers]'
	@touch $@

# LPIPS and FID tests are skipped without them, so being offline stops nothing.
weights: install  ## fetch the weights of LPIPS and FID into pretrained/metrics/
	@$(BIN)/python scripts/fetch_weights.py || echo "continuing without these weights"

demo: weights    ## restore the demonstration images, degraded in ten ways; writes results/test/
	$(BIN)/python test.py -opt options/test.yml

exact-demo: install  ## solve an exactly solvable problem with every solver; writes results/exact-demo/
	$(BIN)/python scripts/exact_demo.py

app: weights     ## open the web page on http://127.0.0.1:7860
	$(BIN)/python app.py

test: lint typecheck unit  ## everything CI checks

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: install
	$(BIN)/mypy

unit: weights
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -q

format: install  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
