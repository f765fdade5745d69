# make demo [TEXT="A sentence"] | test | check | bench. Each makes .venv when it is missing, and installs again when what it installs changed.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test check lint bench install

demo: $(INSTALLED)
	$(BIN)/python -m clearhead.lens.demo $(if $(TEXT),'$(subst ','\'',$(TEXT))')

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.families
	$(BIN)/python -m benchmarks.training --quick
	$(BIN)/python -m benchmarks.look
	$(BIN)/python -m benchmarks.prune
	$(BIN)/python -m benchmarks.cost

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[gemma,claims,train,studio,test,dev]"
	touch $@
