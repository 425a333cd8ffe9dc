# Everything is done from .venv, which `make install` makes; what a target needs is made first, and only when it is stale.
# Values such as PORT=9000 reach the commands through the environment, on the command line of make or before it.
PYTHON ?= python3

VENV := .venv/bin
LOCKS := pyproject.toml requirements.lock requirements-torch.lock scripts/install.py

# Where it is set, each of the hundreds of processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# Three on two cores: many tests wait for processes.
PYTEST := $(VENV)/python -m pytest -ra -n 3 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
TEST := $(VENV)/ruff check --quiet || status=1; $(PYTEST) -m "not thorough and not slow" || status=1

.PHONY: help install up down test test-all test-gpu zoo fuzz chaos load bench agent lint fmt speed lock

help: ## this list
	@awk -F ' *## ' '/^[a-z-]+:.*## /{sub(/:.*/, "", $$1); printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.installed ## .venv with the pinned packages; PYTHON=python3.12 chooses the Python
	@cat $<

up: .venv/.installed ## the whole site on this machine, Ctrl-C stops it; PORT=8000 LISTEN=127.0.0.1
	@exec $(VENV)/python manage.py up --with-make

down: ## ends what make up or make agent of this checkout left running
	@! test -x $(VENV)/python || exec $(VENV)/python -m runs.hosting.down

test: .venv/.installed-dev ## what is worth waiting for: 8 minutes on 2 cores; says what was skipped or left, and why
	@status=0; $(TEST); exit $$status

test-all: .venv/.installed-dev ## everything that can be tested on this machine; DONE=test leaves out what make test has just run
	@status=0; $(if $(filter test,$(DONE)),,$(TEST);) $(PYTEST) -m "thorough or slow" || status=1; exit $$status

test-gpu: .venv/.installed-dev ## on a GPU host: every kernel on each config's smallest workload, and the tests that need a GPU; DEVICE=cuda:0
	@status=0; $(VENV)/python -m kernels check every-kernel --device $(or $(DEVICE),cuda:0) || status=1; $(PYTEST) -m gpu || status=1; exit $$status

zoo: .venv/.installed-dev ## kernels that cheat and honest ones: what each must be called, and what it is called; DEVICE=cpu ISOLATED=1 CASES=a,b
	@exec $(VENV)/python tests/zoo

fuzz: .venv/.installed-dev ## the API with every hostile value of every field: some minutes
	@FUZZ=all $(VENV)/python -m pytest -ra tests/site/test_api_fuzz.py

chaos: .venv/.installed-dev ## runs on four hosts while everything breaks, 8 minutes, as root; RUNS=200 SECONDS=480 SEED=N
	@exec $(VENV)/python -m tests.chaos --runs $(or $(RUNS),200) --seconds $(or $(SECONDS),480) $(if $(SEED),--seed $(SEED))

load: .venv/.installed-dev ## one site under load, 10 minutes; SECONDS=600
	@exec $(VENV)/python -m tests.load --seconds $(or $(SECONDS),600)

bench: .venv/.installed ## measures a config in this terminal and keeps it as a run; CONFIG=smoke DEVICE=cuda:0 KERNELS=a,b MEASURES=p50_ms,joules
	@exec $(VENV)/python manage.py bench

agent: .venv/.installed ## BROKER=redis://... make agent: an agent for each device of this host
	@exec $(VENV)/python -m runs.agent --with-make

lint: .venv/.installed-dev ## ruff, mypy, and the import rules
	@status=0; $(VENV)/ruff check --quiet || status=1; $(VENV)/ruff format --check --quiet || status=1; \
	SECRET_KEY=lint $(VENV)/mypy || status=1; SECRET_KEY=lint $(VENV)/lint-imports --no-logo >.venv/borders 2>&1 || { cat .venv/borders; status=1; }; exit $$status

fmt: .venv/.installed-dev ## formats the code and mends what ruff can mend
	@$(VENV)/ruff check --fix --quiet; $(VENV)/ruff format --quiet

speed: .venv/.installed ## how fast the site is: pages, events, start; RESULTS=1000000: pages with so many results, too; DATABASE=URL
	@exec $(VENV)/python scripts/speed.py $(if $(RESULTS),--results $(RESULTS)) $(if $(DATABASE),--database $(DATABASE))

lock: ## newer pinned packages into requirements*.lock (needs uv)
	@scripts/lock.sh

.venv/.installed: $(LOCKS)
	@command -v $(PYTHON) >/dev/null || { echo "install: there is no $(PYTHON) on the PATH; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) scripts/install.py

.venv/.installed-dev: $(LOCKS) requirements-dev.lock requirements-cuda.lock
	@command -v $(PYTHON) >/dev/null || { echo "install: there is no $(PYTHON) on the PATH; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) scripts/install.py --dev
