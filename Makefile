# SPDX-License-Identifier: Apache-2.0
# Verbs for people; `make help` lists them. How things are built stands in CMakeLists.txt alone.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ARGS ?=
SECONDS ?= 60
SEED ?=
PREFIX ?= /usr/local
MAKEFLAGS += --no-print-directory
, := ,

# The sanitizers slow the tests down; oneDNN is not built for the thread sanitizer, which does not know forks either.
ASAN_ENV = ASAN_OPTIONS=detect_leaks=1 \
           UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 SHERD_TEST_SECONDS=500
TSAN_ENV = TSAN_OPTIONS=second_deadlock_stack=1:halt_on_error=1:suppressions=$(CURDIR)/tests/thread_sanitizer.txt \
           SHERD_GEMM=reference SHERD_TEST_SECONDS=500

# Tests that reach the kernels of AVX-512 and AMX, each on the three machines that are emulated.
EMULATED_TESTS = test_(kernels|emulated|real)_|test_ops_(forward|gradient|.*products|product_sums|attend_cached|add_norm|norms|layers)|test_(nn_optimizers|autograd_random|parallel_(attention|block|toy)|example_(gradients|llama))$$

.PHONY: all run heat test verify install asan tsan emulated lint symbols operators format bench proof fuzz stress clean help
.DEFAULT_GOAL := all
# Two builds in one folder at once would write each other's files; JOBS is how many go on in one.
.NOTPARALLEL:

# configure FOLDER, OPTIONS: the log is shown only when it fails.
configure = @mkdir -p $(1) && { cmake -S . -B $(1) $(2) >$(1)/configure.log 2>&1 || \
            { cat $(1)/configure.log; exit 1; }; }

all: ready ## build everything into build/
	@cmake --build $(BUILD) --parallel $(JOBS)

.PHONY: ready
ready:
	@tools/bootstrap.sh
	$(call configure,$(BUILD),)

run: ready ## train the GPT example (make run ARGS="--mesh tp=2 --steps 100")
	@cmake --build $(BUILD) --parallel $(JOBS) --target example_gpt parts
	@$(BUILD)/examples/gpt $(ARGS)

heat: ready ## run the heat example (make heat ARGS="--mesh x=2,y=2 --picture heat.png")
	@cmake --build $(BUILD) --parallel $(JOBS) --target example_heat parts
	@$(BUILD)/examples/heat $(ARGS)

# One more test than cores: some wait most of their time.
test: ready ## build and run all tests
	@cmake --build $(BUILD) --parallel $(JOBS) --target tests
	@cd $(BUILD) && ctest --no-label-summary --output-on-failure --parallel $(shell expr $(JOBS) + 1) $(ARGS)

# What is compared in each check takes its time.
verify: ready ## build and run all tests with SHERD_VERIFY=1: replicas are compared, element by element
	@cmake --build $(BUILD) --parallel $(JOBS) --target tests
	@cd $(BUILD) && SHERD_VERIFY=1 SHERD_TEST_SECONDS=500 ctest --no-label-summary --output-on-failure --parallel $(JOBS) $(ARGS)

install: ## install libraries, headers and the command (make install PREFIX=/usr/local)
	@tools/bootstrap.sh
	$(call configure,$(BUILD),-DCMAKE_INSTALL_PREFIX="$(PREFIX)")
	@cmake --build $(BUILD) --parallel $(JOBS) --target parts
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

asan: ## run the tests under the address and undefined behaviour sanitizers
	@tools/bootstrap.sh
	$(call configure,build-asan,-DSHERD_SANITIZE=address$(,)undefined)
	@cmake --build build-asan --parallel $(JOBS) --target tests
	@cd build-asan && $(ASAN_ENV) ctest --no-label-summary --output-on-failure --parallel $(JOBS) $(ARGS)

tsan: ## run the tests that use threads under the thread sanitizer
	@tools/bootstrap.sh
	$(call configure,build-tsan,-DSHERD_SANITIZE=thread)
	@cmake --build build-tsan --parallel $(JOBS) --target tests
	@cd build-tsan && $(TSAN_ENV) ctest --no-label-summary --output-on-failure --parallel $(JOBS) -L threads -LE processes $(ARGS)

emulated: ## run kernels of AVX-512, AVX512_BF16 and AMX by emulation, on any x86-64 machine
	@tools/bootstrap.sh
	$(call configure,build-emulated,-DSHERD_EMULATE=ON -DSHERD_MPI=OFF)
	@cmake --build build-emulated --parallel $(JOBS) --target tests
	@cd build-emulated && for machine in avx512 avx512_bf16 amx; do \
	    echo "== $$machine"; SHERD_EMULATED=$$machine SHERD_TEST_SECONDS=500 ctest --no-label-summary --output-on-failure \
	    --parallel $(JOBS) -R '$(EMULATED_TESTS)' $(ARGS) || exit 1; done

lint: ready ## check format, tags, include direction, symbols, sizes, style
	@cmake --build $(BUILD) --parallel $(JOBS) --target sherd_shared operators_table >/dev/null
	@tools/lint.sh $(BUILD)

symbols: ready ## write the list of exported symbols anew, after a change that is meant
	@cmake --build $(BUILD) --parallel $(JOBS) --target sherd_shared >/dev/null
	@tools/lint_symbols.sh --write $(BUILD)

operators: ready ## write docs/operators.md anew, after an operator came or changed
	@cmake --build $(BUILD) --parallel $(JOBS) --target operators_table >/dev/null
	@$(BUILD)/operators_table >docs/operators.md

format: ## format all sources
	@clang-format -i $$(git ls-files '*.c' '*.h' '*.inc' '*.cpp' '*.cu' '*.cuh')

bench: ready ## run the benchmarks (make bench ARGS=... is passed to each)
	@cmake --build $(BUILD) --parallel $(JOBS)
	@for b in $(BUILD)/bench/*; do [ -x "$$b" ] && [ -f "$$b" ] || continue; \
	    case $$b in *_mpi) continue ;; esac; \
	    echo "== $$b"; "$$b" $(ARGS) </dev/null || exit 1; done

proof: ready ## the long tests: more meshes, many more pairs of layouts, the suite over MPI, emulated kernels
	@cmake --build $(BUILD) --parallel $(JOBS) --target tests
	@for t in $$(grep -lE 'SHERD_PROOF|check_stride|mpirun.h' tests/test_*.c); do \
	    echo "== $$t"; SHERD_PROOF=1 SHERD_TEST_SECONDS=36000 $(BUILD)/$$(basename $$t .c) || exit 1; done
	@tests/conformance.sh $(BUILD) long
	@cmake --build $(BUILD) --parallel $(JOBS) --target stress
	@for kind in openmpi mpich; do [ ! -e $(BUILD)/sherd_mpi_$$kind.so ] || \
	    $(BUILD)/stress/stress --mpi $$kind --times 8 --rounds 500 --keep-going || exit 1; done
	@case $$(uname -m) in x86_64) $(MAKE) emulated ARGS= ;; esac

fuzz: ## fuzz what reads texts, each target for SECONDS=60 (needs clang; make fuzz ARGS="mesh layout")
	@tools/fuzz.sh $(SECONDS) $(JOBS) $(ARGS)

stress: ready ## random programs, right and wrong, on 2 to 16 ranks, for SECONDS=60 (SEED=1 ARGS="--threads" or "--mpi openmpi")
	@cmake --build $(BUILD) --parallel $(JOBS) --target stress
	@$(BUILD)/stress/stress --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

clean: ## remove all build folders
	rm -rf build build-asan build-tsan build-emulated build-fuzz

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile
