# Two commands do all the set-up on a machine that has only Python 3.11+ and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-gpu torture lint format docs figures pictures tutorial maze-study bundle clean

demo: $(VENV)/ready
	$(BIN)/tightrope demo

test: $(VENV)/ready lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=ci

# What needs a GPU, with the Python that has PyTorch for it: make test-gpu PYTHON=python3, PYTHONPATH=bundle where offline.
test-gpu:
	PYTHONPATH=src:$(PYTHONPATH) $(PYTHON) -m pytest -m gpu tests/test_fast.py tests/test_trainer.py

# What can happen to runs, in large numbers; its last output is in docs/reliability.md. An hour or so on 2 cores.
TORTURE := kills damage hostile fuzz disk ray_kills soak
torture: $(VENV)/ready
	status=0; for program in $(TORTURE); do $(BIN)/python experiments/torture/$$program.py || status=1; done; \
	$(BIN)/python experiments/torture/table.py; exit $$status

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site into site/, every warning an error and every link checked. No network is needed.
docs: $(VENV)/ready
	$(BIN)/python -m sphinx -W --keep-going -q docs site
	@echo "site/index.html"

# What the pages show of real runs, about a minute each: the figures, and the tutorial's notebook run anew.
figures: $(VENV)/ready
	$(BIN)/python docs/_make/figures.py

# The report's pictures in README and pages, of the rows in results/; needs Chromium.
pictures: $(VENV)/ready
	$(BIN)/python docs/_make/pictures.py

tutorial: $(VENV)/ready
	$(BIN)/python docs/_make/notebook.py

# Tightened against plain DQN and longer targets on the maze, 5 seeds; writes results/maze.csv. 40 minutes of one core.
maze-study: $(VENV)/ready
	$(BIN)/python experiments/maze.py

# Everything a GPU machine without internet needs beside PyTorch, NumPy and safetensors: as wheels in wheels/, and unpacked
# into bundle/, which PYTHONPATH can name.
BUNDLE_PYTHON ?= 3.12
BUNDLE_WHEELS := ale-py gymnasium cloudpickle farama-notifications minatar typing-extensions tyro docstring-parser typeguard \
	rich markdown-it-py mdurl pygments psutil pytest pluggy iniconfig packaging pytest-timeout
bundle: $(VENV)/ready
	rm -rf bundle wheels
	$(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --python-version $(BUNDLE_PYTHON) \
		--platform manylinux_2_28_x86_64 --constraint constraints.txt --dest wheels $(BUNDLE_WHEELS)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir wheels .
	mkdir bundle
	for wheel in wheels/*.whl; do $(BIN)/python -m zipfile -e $$wheel bundle; done
	git rev-parse HEAD | tr -d '\n' > bundle/tightrope/COMMIT
	git diff --quiet HEAD || printf + >> bundle/tightrope/COMMIT
	@echo "ready: copy bundle/ over and run  PYTHONPATH=bundle python3 -m tightrope"
	@echo "or wheels/, and run  pip install --no-index --no-deps wheels/*.whl"

$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) bundle wheels demo demo-* build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
