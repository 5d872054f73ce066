# Each target first creates the virtual environment .venv, and recreates it when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
OUT := out
FAST := tests/collectives tests/simcomm tests/scenarios tests/docs/test_imports.py
WORKERS ?= -n 3 --dist worksteal  # runs three tests at a time; WORKERS= runs them one by one
unexport PYTHONDONTWRITEBYTECODE  # if it is set, each process of a test compiles the sources again
PYTHONS ?= python3.12 python3.13
PINS ?=  # additional requirements for pip, such as an exact version of torch

.PHONY: help
help: ## list the targets
	@echo "make TARGET, one of:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@echo "Installing into $(VENV): about 6 GB with torch, about two minutes on a fast line ..."
	rm -rf $(VENV)
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test]' $(PINS)
	touch $@

# The machine code is cached by the path of its sources, so later runs and parallel tests need not compile it again.
$(COMPILED): $(STAMP) $(wildcard simcomm/*.py simcomm/compiled/*/*.py simcomm/model/*.py simcomm/cluster/paths.py)
	$(BIN)/python -m simcomm.machine_code
	touch $@

.PHONY: install
install: $(COMPILED) ## create the virtual environment, and compile the engine (under a minute)

.PHONY: demo
demo: $(COMPILED) ## predict two ranks here and eight hosts, run the two, compare and draw (a minute after installation)
	@mkdir -p $(OUT)
	@$(BIN)/ringlab compare quickstart --report $(OUT)/report.html
	@$(BIN)/ringlab animate star8 --algorithm ring -o $(OUT)/ring.gif
	@echo "Open $(OUT)/report.html and $(OUT)/ring.gif in a browser."
	@echo "$(VENV) takes $$(du -sh $(VENV) | cut -f1) of disk. Learn how this works: $(BIN)/ringlab learn"

.PHONY: test
test: $(COMPILED) ## run the test suite without the slow tests (minutes)
	$(BIN)/python -m pytest $(WORKERS)

.PHONY: fit-nccl
fit-nccl: $(STAMP) ## refit the parameters of NCCL's model to the published tables (under a minute)
	$(BIN)/python -m benchmarks.studies.nccl_fit

.PHONY: fit-scaling
fit-scaling: $(STAMP) ## refit the parameters of a training step to the published runs and series (minutes)
	$(BIN)/python -m benchmarks.studies.step_fit --write
	$(BIN)/python -m benchmarks.studies.one_gpu_fit

.PHONY: test-fast
test-fast: $(COMPILED) ## run the tests of proofs, engines, scenarios and the command line (about a minute)
	$(BIN)/python -m pytest $(WORKERS) $(FAST)

.PHONY: test-all
test-all: $(COMPILED) ## run all tests, including the slow ones (much longer)
	$(BIN)/python -m pytest $(WORKERS) -m ''

.PHONY: test-oldest
test-oldest: ## run the tests with the oldest supported torch, in a separate virtual environment
	$(MAKE) test VENV=.venv-oldest PINS='torch==2.11.* torchvision==0.26.*'

.PHONY: test-pythons
test-pythons: ## run the tests with other versions of Python: make test-pythons PYTHONS="python3.12 python3.13"
	for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python VENV=$$($$python -c 'import sys; print(".venv-%d.%d" % sys.version_info[:2])') || exit 1; done

.PHONY: lint
lint: $(STAMP) ## check style, types, pages, commit subjects, test names and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/check_docs.py
	$(BIN)/python docs/check_texts.py

.PHONY: pictures
pictures: $(STAMP) ## draw the pictures of the documentation
	$(BIN)/ringlab animate two-racks -o docs/pictures/two-racks.gif
	$(BIN)/ringlab animate two-racks -o docs/pictures/two-racks.png
	$(BIN)/ringlab plot step faults -o docs/pictures/step.png
	$(BIN)/ringlab plot scaling star8 --set cluster.hosts=64 -o docs/pictures/scaling.png
	$(BIN)/ringlab plot path faults --algorithm double_tree -o docs/pictures/path.png
	$(BIN)/ringlab predict two-racks --sweep 'collective.sizes=1..65536KiB*4' --plot docs/pictures/sizes.png \
		--set 'collective.algorithms=["direct", "recursive_doubling", "halving_doubling", "ring"]'
	$(BIN)/ringlab plot cluster dgx-h100 --set cluster.preset=dgx-1-v100 -o docs/pictures/dgx-1-v100.png
	$(BIN)/ringlab plot cluster docs/fat_tree.toml -o docs/pictures/fat-tree.png
	$(BIN)/python -m benchmarks.accuracy --plot docs/pictures/accuracy.png
	$(BIN)/ringlab plan examples/rent_resnet50.toml --plot docs/pictures/plan.png

.PHONY: tables
tables: $(COMPILED) ## write the tables of the last measurements into the pages
	$(BIN)/python docs/page_writer.py

.PHONY: docs
docs: $(STAMP) ## write the reference from the code, and build the documentation into out/site
	$(BIN)/python docs/page_writer.py docs/reference/command-line.md docs/reference/python.md docs/reference/scenario.md
	test -d .venv-docs || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet 'mkdocs-material>=9.5'
	.venv-docs/bin/python docs/make_site.py

.PHONY: bench
bench: $(COMPILED) ## run all benchmarks, and write their results into benchmarks/results (minutes)
	for program in benchmarks/against_gloo.py benchmarks/against_simgrid.py benchmarks/engine.py benchmarks/faults.py benchmarks/strategies.py benchmarks/growth.py benchmarks/methods.py benchmarks/overlap.py benchmarks/nccl_errors.py benchmarks/nccl_structure.py benchmarks/replaying.py benchmarks/traces.py benchmarks/training_curves.py benchmarks/virtual_launches.py benchmarks/virtual_on_gloo.py benchmarks/virtual_programs.py benchmarks/waiting.py; do echo "$$program"; $(BIN)/python $$program || exit 1; done

.PHONY: reality
reality: $(COMPILED) ## compare predictions of emulated clusters with measurements, and write the tables (ten minutes, on an idle machine)
	$(BIN)/python -m benchmarks.accuracy --here --json benchmarks/results/accuracy_here.json
	$(BIN)/python docs/page_writer.py docs/reports/tcp.md

.PHONY: compared
compared: $(COMPILED) ## compare the quickstart with its prediction three times, and write the table (six minutes, on an idle machine)
	mkdir -p $(OUT)
	for run in 1 2 3; do $(BIN)/ringlab compare scenarios/quickstart.toml --thorough --set training.epochs=3 \
		--set 'training.gradient_sync=["naive", "ring"]' --json $(OUT)/compared$$run.json || exit 1; done
	$(BIN)/python docs/compare_table.py $(OUT)/compared1.json $(OUT)/compared2.json $(OUT)/compared3.json
	$(BIN)/python docs/page_writer.py docs/reports/compare.md

.PHONY: one-rank
one-rank: $(COMPILED) ## profile one rank, predict 2, 4 and 8 emulated hosts from it, measure them, and write the table (two minutes, on an idle machine)
	mkdir -p $(OUT)
	$(BIN)/ringlab profile scenarios/emulated/small_network.py:build --shape 3,32,32 --batch-size 60 --threads 1 --steps 15 -o $(OUT)/one_rank.json
	$(BIN)/python -m benchmarks.accuracy.one_rank examples/emulated_hosts.toml --devices 2,4,8 --profile $(OUT)/one_rank.json --json benchmarks/results/one_rank.json
	$(BIN)/python docs/page_writer.py docs/reports/strategies.md

.PHONY: bench-beside
bench-beside: $(STAMP) ## compare the speed with another checkout or commit, BEFORE=FOLDER or COMMIT (minutes)
	$(BIN)/python benchmarks/side_by_side.py --before $(BEFORE)

.PHONY: gpu-wheels
gpu-wheels: ## download the packages of `make gpu` for a machine without a network; PRESENT=FILE lists installed packages
	$(PYTHON) benchmarks/gpu_wheels.py download $(if $(PRESENT),--present $(PRESENT))

.PHONY: gpu
gpu: ## run all tests and measurements that need GPUs (nine minutes); GPU_OPTIONS=--plan lists them
ifeq ($(filter --plan,$(GPU_OPTIONS)),)
	$(PYTHON) benchmarks/gpu_wheels.py install
	.venv-gpu/bin/python benchmarks/gpu.py $(GPU_OPTIONS)
else
	$(PYTHON) benchmarks/gpu.py $(GPU_OPTIONS)
endif

.PHONY: oracle
oracle: $(STAMP) ## recompute the test cases with SimGrid (needs g++ and libsimgrid-dev)
	cd tests/simcomm && ../../$(BIN)/python -m oracle.make_simgrid_cases

.PHONY: clean
clean: ## remove all generated files, including the virtual environments
	rm -rf $(VENV) .venv-oldest .venv-gpu .venv-docs wheels $(OUT) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
