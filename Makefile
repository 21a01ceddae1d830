# Two commands: `make demo` gives the first answer, `make test` runs the tests. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/installed
	$(BIN)/llmqsim run scenarios/first_answer.yaml

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n 2

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 15) else f"llmqsim needs Python 3.11 to 3.14 (this is {v.major}.{v.minor}); name another one: make demo PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,parquet]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
