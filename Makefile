# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# One thread per test worker: two workers with two OpenMP threads each slow each other down tenfold. One worker more than
# cores that this may use: some tests wait for servers and other processes.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(len(getattr(os, 'sched_getaffinity', lambda _: range(os.cpu_count() or 1))(0)) + 1)")

.PHONY: help install weights demo exact-demo app test test-integrations lint typecheck unit fuzz format docs notebook

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## make .venv and install everything, pinned

$(VENV)/.installed: requirements.txt .ci/constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -c .ci/constraints.txt -e '.[dev,docs]'
	@touch $@

# Tests of metrics with weights are skipped without them, so being offline stops nothing.
weights: install  ## fetch the weights of the metrics into the user's cache
	@$(BIN)/python scripts/fetch_weights.py || echo "continuing without these weights"

demo: weights    ## restore the demonstration images, degraded in ten ways; writes results/demo/
	$(BIN)/python test.py -opt options/demo.yml

exact-demo: install  ## solve an exactly solvable problem with every solver; writes results/exact-demo/
	$(BIN)/python scripts/exact_demo.py

app: weights     ## open the web page on http://127.0.0.1:7860
	$(BIN)/python app.py

test: lint       ## lint, types, tests
	@$(MAKE) --no-print-directory -j2 typecheck unit

# Installs about 100 MB more: onnx, onnxruntime, openvino, spandrel.
test-integrations: install  ## try the libraries that the project works with, and the wheel in a new environment
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.txt -c .ci/constraints.txt -e '.[export]' spandrel
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/integrations

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: install
	$(BIN)/mypy

unit: weights
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q --ignore=tests/integrations

# Half a minute on two idle cores; EXAMPLES=2000 takes a minute.
EXAMPLES ?= 500
# By name: collecting all tests takes longer than some of these.
FUZZED := $(shell grep -l '^from hypothesis\|mark.hypothesis' -r tests --include='test_*.py')
fuzz: weights    ## damaged and hostile files, many times more of them than in `make test`
	MR_FUZZ=$(EXAMPLES) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -q -m hypothesis --durations=20 $(FUZZED)

format: install  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not --quiet: that would also silence the warnings that --strict counts.
docs: install    ## build the documentation into site/; an unknown page, anchor or name is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebook: install  ## run the notebook and keep its outputs
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/notebook.py
