# What a person or CI does here, by one word each. `make` alone lists them; `make -C bench` lists further measurements.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/pytest
# Without compiled files each of the many processes that tests start would compile the package first.
unexport PYTHONDONTWRITEBYTECODE

help: ## list what can be done
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: $(VENV)/.runs ## start the proxy on 127.0.0.1:8800 in front of OPENAI_UPSTREAM (or the OpenAI API)
	@exec $(BIN)/compaction-proxy serve $(ARGS)

setup: $(VENV)/.tests ## the environment that everything else here uses

quick: $(VENV)/.tests ## lint, types and the tests that reach what was changed, in half a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -q -n 2 -m "not seconds and not slow and not soak" $$($(BIN)/python -m tests.touched) $(ARGS)

reach: $(VENV)/.tests ## note anew which tests reach which module, for `make quick` (ten minutes)
	$(BIN)/python -m tests.reach

test: $(VENV)/.tests ## lint, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -q -rs -n 3 --dist loadgroup --no-loadscope-reorder -m "not seconds and not slow and not soak" $(ARGS)

mutants: $(VENV)/.tests ## 200 small faults in the code: are they noticed by the tests beside it? ARGS="--room access --draw 20"
	$(BIN)/python bench/mutants.py $(ARGS)

bench: $(VENV)/.tests ## what the proxy costs, beside a bare relay, nginx, LiteLLM and CliffCompaction; TRACES=DIR: also on a day recorded there
	$(BIN)/python -m tests.end_to_end.servers.install litellm cliff
	$(BIN)/python bench/relay.py $(ARGS) $(if $(TRACES),--traces $(wildcard $(TRACES)/*_*.jsonl.gz))

agents: $(VENV)/.tests ## real agents, unmodified, on tasks of fifty and sixty steps through the proxy
	$(BIN)/python -m tests.end_to_end.agents.install
	$(BIN)/pytest -q -s tests/end_to_end/agents/test_agents.py tests/end_to_end/agents/test_recall.py \
		tests/end_to_end/agents/errands tests/end_to_end/agents/test_second_read.py
	$(BIN)/python -m tests.end_to_end.agents.page

soak: $(VENV)/.tests ## the long runs, whole: 100,000 requests, 200 kills, 40,000 generated histories, a fleet; TRACES=DIR: every recorded one there
	$(BIN)/python -m tests.support.environments object_store
	$(BIN)/python bench/soak.py $(ARGS)
	$(BIN)/pytest -q -rP -m soak
	$(BIN)/pytest -q -n 2 --hypothesis-profile=search --timeout=7200 -m hypothesis tests/path tests/history tests/shorten

site: $(VENV)/.tests ## the documentation site, in build/site; dead links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

config: $(VENV)/.runs ## write proxy.yaml anew from the code
	$(BIN)/compaction-proxy check --defaults > proxy.yaml

dist: # for the release workflow: wheel, sdist, SBOM and hashes of a release in dist/, the same bytes for the same commit
	@PYTHON=$(PYTHON) deploy/release.sh

$(VENV)/.runs: pyproject.toml
	@echo "first run: setting up $(VENV), about a minute in all"
	@test -d $(VENV) || { echo "  creating the environment"; $(PYTHON) -m venv $(VENV); }
	@echo "  installing compaction-proxy and the 26 packages it needs"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@echo "  done"
	@touch $@

$(VENV)/.tests: pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.runs

.PHONY: help run setup quick test mutants bench agents soak site config dist
