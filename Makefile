# Two commands from nothing: `make demo` answers the lecture's two questions, `make test` runs every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE  # compiled tests serve the next run

.PHONY: demo test test-fast lint style tables generate docs environments mutate site page test-page release clean

demo: $(VENV)/.napkin
	@$(BIN)/napkin train-time --params 70B --tokens 15T --gpus 1024 --hardware h100 --mfu 0.5
	@echo
	@$(BIN)/napkin max-params --gpus 8 --hardware h100

# Every check, on every core; the type checker runs next to the tests.
test: $(VENV)/.test style
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n auto --dist worksteal; tests=$$?; \
	wait $$types && exit $$tests

# Without the tests marked slow: what to run between two edits.
test-fast: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

lint: style
	$(BIN)/mypy

style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The tables that the installed package reads, generated from hardware_specs.yaml and configs/.
tables: $(VENV)/.test
	$(BIN)/python tools/tables.py

# All generated tables and pages of errors, in the order in which one needs the other.
generate: $(VENV)/.test
	$(BIN)/python tools/generate.py

# What README.md and docs/ show below each example. Fails where a number moved, until told `make docs ACCEPT=1`.
docs: $(VENV)/.test
	$(BIN)/python tools/docs.py $(if $(ACCEPT),--accept)

# napkin on every Python that is here, with the lowest and the newest of its dependencies, and next to transformers.
environments: $(VENV)/.test
	$(BIN)/python tools/environments.py

# Formulas changed one at a time: does a test notice?
mutate: $(VENV)/.test
	$(BIN)/python tools/mutate.py

# The documentation as a static site in site/, with the page, every link followed.
site: $(VENV)/.site
	$(BIN)/python tools/site.py

# The page that asks napkin in a browser, in site/page (tools/page.py).
page: $(VENV)/.napkin
	$(BIN)/python tools/page.py

# The page in a real browser: Debian's chromium and chromium-driver. Says so where they are not there.
test-page: $(VENV)/.page
	$(BIN)/python tools/page.py
	@if { command -v chromium || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null; \
	then $(BIN)/python -m pytest tests/browser_page.py; \
	else echo "SKIPPED: the page was NOT tested, no chromium and chromedriver are here (apt install chromium chromium-driver)"; fi

# The wheel and the source distribution, checked and installed alone; uploads nothing.
release: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	$(BIN)/python tools/release.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "error: napkin needs Python 3.10 or newer; hint: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.napkin: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m compileall -q src  # as an installed wheel has it
	@touch $@

# A torch that is there already will do; otherwise the build for CPUs.
$(VENV)/.test: $(VENV)/.napkin
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@touch $@

$(VENV)/.page: $(VENV)/.napkin
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,page]'
	@touch $@

$(VENV)/.site: $(VENV)/.napkin
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

clean:
	rm -rf $(VENV) .environments dist site .site .cache page/node_modules .mypy_cache .ruff_cache .pytest_cache
