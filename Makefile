# make setup   a virtual environment in .venv with autofuse and its tools (does nothing when it is up to date)
# make demo    MobileNetV2, from an empty database: tune, compile, compare, report (at most 10 minutes)
# make test    the tests that are needed at each change (under 10 minutes on two cores)
# make test-long      what `make test` leaves out or shortens: further variants of kernels, long stories
# make test-browser   the report in Chromium (apt-get install chromium chromium-driver), screenshots in out/browser
# make test-arm   an emulated ARM core: made once (a minute, 250 MB in the user's cache, no root), then tested over RPC
# make test-cluster   PostgreSQL, a Dask cluster and devices behind a tracker, on this machine (apt-get install postgresql)
# make test-torch  the backend of torch.compile, in an environment with torch's CPU build beside .venv (600 MB)
# make test-ort    the execution provider in the oldest and the newest ONNX Runtime (40 MB in the user's cache, once)
# make test-docs      every code block of the documentation, run as a reader would
# make docs    the documentation as a site in out/site, built strictly
# make release-check  wheel and source archive: built twice and compared, installed from a local index, tried outside of the checkout
# make measured       a small network tuned and exported to out/measured: what this kind of CPU says
# make lint    ruff check, ruff format --check, mypy
# make models  the networks of experiments/models as ONNX files in out/models (installs torch apart from .venv)
# make importer-check   what TVM's importer computes against ONNX: writes the list of what it may be asked for (a quarter of an hour)
# make node-suite       ONNX's own node cases, each compiled, run and compared (a quarter of an hour)
# make peers   every rival on every network, one thread and two (hours; experiments/peers/README.md)
# make clean   remove what was built (the virtual environment too)

VENV   := .venv
STAMP  := $(VENV)/.installed
BIN    := $(VENV)/bin
# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 setup` overrides it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)

# In the order in which TVM looks for one.
LINKERS := g++ gcc clang++ clang c++ cc

# The tests themselves say what comes first (tests/conftest.py).
# torch's CPU build. Where pip finds it under another version, or only elsewhere: make TORCH=torch==2.14.0 test-torch, PIP_FIND_LINKS.
TORCH ?= torch==2.13.0+cpu
TORCH_VENV := out/torch-venv
TORCH_STAMP := $(TORCH_VENV)/.installed

PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.DELETE_ON_ERROR:
.PHONY: setup demo test test-long test-browser test-arm test-cluster test-torch torch-venv test-ort test-docs docs release-check measured lint models importer-check node-suite peers peers-setup check-machine clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(MAKE) --no-print-directory check-machine
	@echo "setup: installing autofuse into $(VENV) (TVM, ONNX Runtime and the tools: some minutes the first time)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || { \
		echo "setup: pip could not install everything; its message stands above (is the network reachable?)." >&2; exit 1; }
	@touch $@

check-machine:
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		found=$$(command -v "$(or $(PYTHON),python3)" >/dev/null && "$(or $(PYTHON),python3)" --version 2>&1 || echo none); \
		echo "setup: Python 3.11 or newer is needed; found: $$found." >&2; \
		echo "       Install one (Debian, Ubuntu: apt-get install python3 python3-venv)," >&2; \
		echo "       or name it: make PYTHON=/path/to/python3.12 setup" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "setup: $(PYTHON) has no venv module." >&2; \
		echo "       Install it (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	@for linker in $(LINKERS); do command -v $$linker >/dev/null 2>&1 && break; linker=; done; \
		if [ -z "$$linker" ]; then \
			echo "setup: no C linker (gcc, clang or cc) found; compiled models are linked with it." >&2; \
			echo "       Install one (Debian, Ubuntu: apt-get install gcc libc6-dev)." >&2; exit 1; fi; \
		out=$$("$(PYTHON)" -c 'import tempfile; print(tempfile.mkdtemp())'); \
		echo 'int answer(void) { return 42; }' > "$$out/a.c"; \
		if ! "$$linker" -x c -shared -fPIC -o "$$out/a.so" "$$out/a.c" 2> "$$out/log"; then \
			echo "setup: $$linker is there, but cannot link a shared library:" >&2; head -n 3 "$$out/log" >&2; \
			echo "       Install its parts (Debian, Ubuntu: apt-get install binutils libc6-dev)." >&2; exit 1; fi; \
		rm -rf "$$out"

demo: $(STAMP)
	$(BIN)/python -m experiments demo

test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) --brief

test-long: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) --beyond-brief

test-browser: $(STAMP)
	@command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || { \
		echo "test-browser: no Chromium with chromedriver found." >&2; \
		echo "       Install both (Debian: apt-get install chromium chromium-driver)." >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser,dashboard]'
	$(BIN)/python -m pytest -m browser tests/browser -n 0

test-arm: $(STAMP)
	$(BIN)/python -m pytest tests/arm -n 0

# `setpriv` lets the server run as another user where this one is root.
test-cluster: $(STAMP)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
		echo "test-cluster: no PostgreSQL server found." >&2; \
		echo "              Install it (Debian, Ubuntu: apt-get install postgresql)." >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[postgres,cluster]' || { \
		echo "test-cluster: pip could not install psycopg and distributed; its message stands above." >&2; exit 1; }
	$(BIN)/python -m pytest -m cluster tests/cluster -n 0

# It sees what .venv holds, and keeps torch out of there: TVM imports torch wherever it finds it.
torch-venv: $(TORCH_STAMP)

$(TORCH_STAMP): $(STAMP)
	@echo "torch-venv: installing $(TORCH) into $(TORCH_VENV)"
	@test -x $(TORCH_VENV)/bin/python || $(BIN)/python -m venv $(TORCH_VENV)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(TORCH_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_autofuse.pth"
	@$(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' 'onnxscript>=0.5' || { \
		echo "torch-venv: pip could not install $(TORCH); its message stands above." >&2; \
		echo "            Name another version (make TORCH=torch==VERSION torch-venv)," >&2; \
		echo "            or a folder with the wheel of its CPU build in PIP_FIND_LINKS." >&2; exit 1; }
	@touch $@

test-torch: $(TORCH_STAMP)
	$(TORCH_VENV)/bin/python -m pytest tests/torch_backend tests/experiments/test_torch_compile_experiment.py -n 0
	PATH="$(abspath $(BIN)):$$PATH" $(TORCH_VENV)/bin/python -m pytest -m docs tests/docs -k torch -n 0

test-ort: $(STAMP)
	$(BIN)/python -m pytest -m ort tests/ort -n 0

test-docs: $(STAMP)
	$(BIN)/python -m pytest -m docs tests/docs -n 0 -o faulthandler_timeout=3600

docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: the site is in out/site"

release-check: $(STAMP)
	$(BIN)/python -m pytest -m release tests/release -n 0

measured: $(STAMP)
	rm -rf out/measured && mkdir -p out/measured
	$(BIN)/python -m experiments demo --budget 90s --bench 20s --out out/measured/demo
	$(BIN)/python -m autofuse db export out/measured/database --db out/measured/demo/profile.db

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

models: $(STAMP)
	$(BIN)/python -m experiments models

importer-check: $(STAMP)
	$(BIN)/python -m experiments importer_check

node-suite: $(STAMP)
	$(BIN)/python -m experiments node_suite

peers-setup: $(STAMP)
	$(BIN)/python -m experiments peers.environments

peers: peers-setup
	$(BIN)/python -m experiments peers all $(PEERS)

clean:
	rm -rf $(VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
