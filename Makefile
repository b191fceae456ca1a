# Everything a person or CI does here, by one word each. `make` alone lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help: ## list what can be done
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: $(VENV)/.runs ## start the proxy on 127.0.0.1:8800 in front of OPENAI_UPSTREAM (or the OpenAI API)
	@exec $(BIN)/compaction-proxy serve $(ARGS)

test: $(VENV)/.tests ## lint, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 --dist loadgroup -m "not slow" $(ARGS)

fidelity: $(VENV)/.tests ## is a relay true to the byte? URL=http://... of the proxy, PORT= its upstream's port
	$(BIN)/python tests/fidelity/run.py --url $(URL) --upstream-port $(or $(PORT),9900)

clients: $(VENV)/.tests ## real client libraries, unmodified, through the proxy
	$(BIN)/python tests/clients/install.py
	$(BIN)/pytest -q tests/test_clients.py

bench: $(VENV)/.tests ## what the proxy costs, beside a bare relay and nginx, in one run
	$(BIN)/python bench/relay.py $(ARGS)

soak: $(VENV)/.tests ## 100,000 requests with clients that leave at random: memory, connections, tasks
	$(BIN)/python bench/soak.py $(ARGS)

config: $(VENV)/.runs ## write proxy.yaml anew from the code
	$(BIN)/compaction-proxy check --defaults > proxy.yaml

format: $(VENV)/.tests ## let the formatter have its way
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the others made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.runs: pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.tests: pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.runs

.PHONY: help run test fidelity clients bench soak config format clean
