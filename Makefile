# Every target sets up .venv if needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ABN := $(VENV)/.inplace-abn
NETWORKS := $(VENV)/.networks

.PHONY: setup networks demo demo-model test test-all check docs notebooks lock fmt bench bench-compare gpu-check results reliability clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# inplace-ABN has no wheels. It is compiled if there is a compiler; otherwise its tests are skipped.
$(ABN): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools setuptools-scm wheel ninja
	MAX_JOBS=2 $(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation inplace-abn \
	  || echo "inplace-abn was not built: tests of norm 'inplace' will be skipped"
	touch $@

# Libraries whose networks the slow tests attach. torchvision would pull a torch for CUDA, so dependencies are named.
networks: $(NETWORKS)

$(NETWORKS): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt huggingface-hub regex tokenizers tqdm
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps torchvision timm segmentation-models-pytorch \
	  transformers
	touch $@

demo: setup
	$(BIN)/rcil demo --output demo

# Trains the model that the demo starts from, rcil/demo/base.safetensors. Takes more than half an hour; run it again
# after an interruption to continue.
MODEL := build/demo-model
demo-model: setup
	test -d $(MODEL)/site || $(BIN)/rcil data make-site $(MODEL)/site --count 2000 --size 288x384 --seed 7 --frames 0
	$(BIN)/rcil train rcil/demo/base.yaml -o $(MODEL)/base --set data.root=$(MODEL)/site --resume
	$(BIN)/python -m tools.demo_model $(MODEL)/base/step0.safetensors

test: $(ABN)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-all: $(ABN) $(NETWORKS)
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) docs

# The documentation site in build/site. A warning, a dead link and anything that would be loaded from elsewhere are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m tools.site.links build/site

# Executes the notebooks and stores what they print.
notebooks: setup
	$(BIN)/python -m tools.site.notebooks

# Writes locks/: all packages of an installation with hashes. Needs the package index.
lock: setup
	$(BIN)/python -m tools.lock

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Prints every ratio with its spread and writes it to build/bench.
bench: setup
	$(BIN)/python tools/bench/pcd.py
	$(BIN)/python tools/bench/train_step.py
	$(BIN)/python tools/bench/train_step.py --against d557bad
	$(BIN)/python tools/bench/spinning.py
	$(BIN)/python tools/bench/spinning.py --busy 2
	$(BIN)/python tools/bench/spinning.py --busy 2 --runtime onnxruntime
	$(BIN)/python tools/bench/depthwise.py
	$(BIN)/python tools/bench/loader.py
	$(BIN)/python tools/bench/scale.py
	$(BIN)/python tools/bench/export.py
	$(BIN)/python tools/bench/export.py --whole
	$(BIN)/python tools/bench/upsampling.py
	$(BIN)/python tools/bench/upsampling.py --classes 151
	$(BIN)/python tools/bench/video.py --frames 60 --rounds 3
	$(BIN)/python tools/bench/video.py --size 288x512 --frames 120 --rounds 3
	$(BIN)/python tools/bench/video.py --size 960x1664 --frames 30 --rounds 3
	$(BIN)/python tools/bench/serve_http.py
	$(BIN)/python tools/bench/serve_http.py --clients 8 --width 8 --rounds 5

# Compares build/bench with tools/bench/baseline.json; a ratio that is worse beyond the noise is an error.
bench-compare: setup
	$(BIN)/python tools/bench/ratios.py

# Prints the masks and times of CPU, CUDA and TensorRT as one table. Runs without a GPU too.
gpu-check: setup
	$(BIN)/python tools/gpu_check.py

# Takes hours; CAMVID and VOC are folders with CamVid and with animals of PASCAL VOC. Run it again after an interruption
# to continue.
CAMVID ?= data/camvid
VOC ?= data/voc-animals
results: setup
	$(BIN)/python -m tools.results --camvid $(CAMVID) --voc $(VOC)
	$(BIN)/rcil classify docs/results/classify.yaml -o results/classify --compare --seeds 5
	$(BIN)/rcil compare docs/results/small/camvid.yaml -o results/camvid --methods fine-tuning,lwf,mib,plop,rcil,joint \
		--set data.root=$(CAMVID)

# The figures of docs/reliability.md: damaged inputs, killed processes, generated requests. Takes more than an hour.
reliability: setup
	$(BIN)/python -m tools.fuzz --json docs/reliability/fuzz.json
	$(BIN)/python -m tools.kill --json docs/reliability/kills.json
	$(BIN)/python -m tools.schema_check --examples 300 --json docs/reliability/http.json

clean:
	rm -rf $(VENV) demo build dist
