# The front door: every target sets up what it needs by itself (scripts/setup.sh) and then calls CMake or a script.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
export JOBS FUZZ_SECONDS OFFLINE

program := build/release/tools/lowbit
build_program := scripts/setup.sh program && cmake --preset release && cmake --build --preset release -j $(JOBS) --target lowbit_program

.PHONY: help demo test bench bench-gpu sanitize-gpu lint format fuzz install clean

help:
	@echo 'make demo                what every format costs and loses on this machine'
	@echo 'make test                every test of this machine, sanitizers included, and one line that sums up'
	@echo 'make bench               the benchmarks of this machine (ARGS="..." goes to lowbit bench)'
	@echo 'make sanitize-gpu        every CUDA kernel under compute-sanitizer: memcheck, racecheck, synccheck, initcheck'
	@echo 'make bench-gpu           the GPU against its floor and against torch (ARGS="..." goes to python -m bench; docs/benchmark.md)'
	@echo 'make lint                clang-format, clang-tidy and cppcheck'
	@echo 'make format              applies clang-format'
	@echo 'make fuzz                each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make install PREFIX=dir  dir/bin/lowbit, dir/include/lowbit, dir/lib; now $(PREFIX)'
	@echo 'make clean               removes build/ and .venv/'
	@echo
	@echo 'JOBS=$(JOBS) is how much runs side by side; OFFLINE=1 never installs anything.'

demo:
	@$(build_program)
	@$(program) demo

bench:
	@$(build_program)
	@$(program) bench $(ARGS)

sanitize-gpu:
	@scripts/sanitize_gpu.sh $(ARGS)

bench-gpu:
	@scripts/bench_gpu.sh $(ARGS)

test:
	@scripts/test.sh

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

format:
	@scripts/setup.sh lint
	@scripts/format.sh

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh

install:
	@$(build_program) --target lowbit
	@cmake --install build/release --prefix '$(abspath $(PREFIX))'

clean:
	rm -rf build .venv
