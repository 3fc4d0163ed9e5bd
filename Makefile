# Every check is a target here, the same for people and CI. `make help` lists them.
SHELL := /bin/sh
BIN := .venv/bin
# Additional arguments of `make test`, `make lock` and others, as in: make test ARGS="tests/owner -x"
ARGS ?=
# The tests of a file run in one process, files side by side: three processes for two cores, up to eight.
# ARGS="-n 0" runs them in this one, as a debugger needs it.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
NAME ?=
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup ## set up and show the main job on an embedded PostgreSQL
	@$(BIN)/moorage demo

.PHONY: test
test: setup ## set up and run the tests this machine can run
	@$(BIN)/pytest $(PARALLEL) $(ARGS)

.PHONY: check
check: types lint imports contracts ## run every static check: the four below

.PHONY: types
types: setup ## check types (mypy, strict)
	@$(BIN)/mypy

.PHONY: lint
lint: setup ## check style and formatting (ruff)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

.PHONY: imports
imports: setup ## check who imports whom (import-linter)
	@$(BIN)/lint-imports --no-logo

.PHONY: contracts
contracts: setup ## check protos/ (buf lint) and that its stubs are up to date
	@$(BIN)/buf lint protos
	@$(BIN)/python tools/protos.py --check

.PHONY: format
format: setup ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: protos
protos: setup ## generate the Python stubs of protos/
	@$(BIN)/python tools/protos.py

.PHONY: agents
agents: ## install the real coding agents that tests talk to; needs Node and npm
	@sh tools/agents.sh

.PHONY: images
images: ## make the container images of tests and examples, without a registry; ARGS=demo for one; needs root, Docker, debootstrap
	@sh tools/images.sh $(ARGS)

.PHONY: image
image: setup helper ## build the container image of the services; IMAGE, BASE and PACKAGES as deploy/image.sh says
	@sh deploy/image.sh

.PHONY: compose
compose: setup ## get Docker Compose for the tests of deploy/ where the engine has none
	@sh tools/compose.sh

.PHONY: engine
engine: ## start a Docker engine for the tests where none runs; needs root, and docker.io
	@address=$$(sh tools/engine.sh start) && echo "export DOCKER_HOST=$$address"

.PHONY: engine-stop
engine-stop: ## end the engine that `make engine` started, with all that is in it
	@sh tools/engine.sh stop

.PHONY: helper
helper: setup ## build the helper of execs in containers, where its source has changed
	@$(BIN)/python tools/helper.py

.PHONY: lock
lock: setup ## resolve pyproject.toml into requirements.lock; ARGS=--upgrade for newer versions
	@$(BIN)/python tools/lock.py $(ARGS)

.PHONY: setup
setup: ## make .venv hold what requirements.lock names; PYTHON=… chooses the interpreter
	@sh tools/bootstrap.sh

FAULTY := $(patsubst %,tests/system/test_%.py,ownership takeover operations crashes durability database_away)

.PHONY: faults
faults: setup ## run races (300 rounds), faults of processes (FAULTS=10 each) and of 100 containers, from FAULT_SEED, for long
	@seed=$${FAULT_SEED:-$$(date +%s)}; echo "FAULT_SEED=$$seed"; FAULT_SEED=$$seed FAULTS=$${FAULTS:-10} \
	RACES=$${RACES:-300} CUTS=200 RACE_ROUNDS=20 CREATIONS=$${CREATIONS:-100} \
	$(BIN)/pytest -n 0 -rP tests/races tests/faults $(FAULTY) $(ARGS)

.PHONY: bench
bench: setup ## measure what things cost, against references; NAME=lease for one, ARGS="--json -" for programs
	@$(BIN)/python -m bench $(NAME) $(ARGS)

.PHONY: clean
clean: engine-stop ## remove .venv and everything made from the sources; keeps .moorage, your data
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find services protos tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
