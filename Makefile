# `make demo` installs everything into .venv and runs the demo, `make test` runs the tests, `make help` says the rest.
# Needs Python 3.11 to 3.13, a C++ compiler and git. Nothing is installed outside this folder.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
# Every step installs into the same environment, so one after the other, whatever -j says.
.NOTPARALLEL:
.PHONY: help install engine demo test test-cluster test-long lint lock clean

ifneq ($(words $(CURDIR)),1)
$(error The folder "$(CURDIR)" has a blank in its path, which Python environments and CMake do not bear. Move it, then run make again)
endif

# What a user's shell may hold for other projects and would change what is installed here.
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_CONSTRAINT PIP_REQUIREMENT SOURCE_DATE_EPOCH
export PIP_USER := 0

PYTHONS := $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python)
SUITABLE := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
VENV_PYTHON := .venv/bin/python

# The environment holds this folder's path: after a move, or when its Python is gone, it is made anew.
ifneq ($(shell $(VENV_PYTHON) -S -E -c '' 2>/dev/null && cat .venv/.path 2>/dev/null),$(CURDIR))
.PHONY: .venv/.path
endif

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: engine .venv/.package ## install tokfleet and all it needs into .venv

engine: .venv/.run ## compile llama.cpp for this machine; CMAKE_ARGS=-DGGML_CUDA=on for CUDA, CMAKE_ARGS= for the CPU again
	@$(VENV_PYTHON) -m scripts.install_engine

demo: install ## run examples/demo.yaml on this machine and show the results
	@.venv/bin/tokfleet run examples/demo.yaml --yes

test: install .venv/.dev ## run all tests; ARGS="-k name" goes to pytest
	@$(VENV_PYTHON) -m pytest $(ARGS)

test-cluster: install .venv/.dev ## run a lab of several hosts in namespaces of this machine; needs root, sshd and rsync
	@$(VENV_PYTHON) -m tests.cluster.needs
	@$(VENV_PYTHON) -m pytest -m "cluster and not long" tests/cluster $(ARGS)

test-long: install .venv/.dev ## run what takes hours of cut links and busy hosts; needs what test-cluster needs
	@$(VENV_PYTHON) -m tests.cluster.needs
	@$(VENV_PYTHON) -m pytest -s -m long tests/cluster $(ARGS)

lint: install .venv/.dev ## check style, types and the import rules
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy --strict
	@.venv/bin/lint-imports

lock: ## write requirements/*.lock anew from pyproject.toml (needs uv); ARGS=--upgrade takes newer versions
	@UV="$(UV)" scripts/lock.sh $(ARGS)

clean: ## remove everything that make has made
	rm -rf .venv .cache build tokfleet.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.path:
	@found=; \
	for python in $(PYTHONS); do \
	    if "$$python" -c '$(SUITABLE)' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "No Python 3.11, 3.12 or 3.13 with its venv module was found (tried: $(PYTHONS))." >&2; \
	    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; Fedora: dnf install python3.13;" >&2; \
	    echo "macOS: brew install python@3.13), or say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
	    exit 1; \
	fi; \
	echo "making .venv with $$("$$found" --version)"; \
	"$$found" -m venv --clear .venv && echo "$(CURDIR)" > $@

.venv/.build: requirements/build.lock .venv/.path
	@$(VENV_PYTHON) -m scripts.install_locked $<
	@touch $@

.venv/.run: requirements/run.lock .venv/.build
	@$(VENV_PYTHON) -m scripts.install_locked $<
	@touch $@

.venv/.dev: requirements/dev.lock .venv/.run
	@$(VENV_PYTHON) -m scripts.install_locked $<
	@touch $@

.venv/.package: pyproject.toml .venv/.run
	@$(VENV_PYTHON) -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
	@touch $@
