# make studio [MODEL=SOURCE] | demo [TEXT="A sentence"] | test | check | bench. Each makes .venv when it is missing, and installs again when what it installs changed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := .venv/.installed
PAGES := $(shell find frontend -type f -not -path '*/node_modules/*')

.PHONY: studio demo test check lint bench install browser

# The pages are built by the install; where npm could not be reached then, it is tried again.
studio: $(INSTALLED)
	test -f clearhead/studio/static/index.html || $(PIP) --no-deps -e .
	$(BIN)/python -m clearhead studio $(if $(MODEL),--model '$(subst ','\'',$(MODEL))')

demo: $(INSTALLED)
	$(BIN)/python -m clearhead.lens.demo $(if $(TEXT),'$(subst ','\'',$(TEXT))')

test: $(INSTALLED) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

check: lint browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.embed
	$(BIN)/python -m benchmarks.prefix
	$(BIN)/python -m benchmarks.families
	$(BIN)/python -m benchmarks.training --quick
	$(BIN)/python -m benchmarks.look
	$(BIN)/python -m benchmarks.prune
	$(BIN)/python -m benchmarks.cost
	$(BIN)/python -m benchmarks.studio

install: $(INSTALLED)

# The tests of the pages need a Chromium. Where there is none and it can't be installed here, they say so and are skipped.
browser:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
	  test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && apt-get install -y -qq chromium; } || true

$(INSTALLED): pyproject.toml constraints.txt hatch_build.py $(PAGES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e ".[gemma,claims,train,studio,notebook,test,dev]"
	touch $@
