# make            install: packages, Python environment, stubs, library
# make demo       install, then show the backend at work
# make test       everything that is checked, in stages; each may be run alone
# make package    a backend folder that needs no installation, in dist/; VARIANT=cpu
# make image      the same, and an image tarball of it beside it
# make fresh-machine  follow the README on fresh Debian systems; needs root, an hour
# make arm-tests  the ARM kernels, cross-compiled, under qemu: needs the Debian packages g++-aarch64-linux-gnu and qemu-user
# make swiftshader-tests  the Vulkan device on a driver without optional features, fetched from Debian; an hour
# make format     put C++ and Python sources into the project's format
# make bench      measure against other engines
# make bench-text measure constraints and templates against llguidance and jinja2
# make clean      remove what was built and installed here

PYTHON := venv/bin/python
VARIANT := cpu
JOBS := $(shell nproc 2>/dev/null || echo 2)
CXX_SOURCES = $(shell find native tests/native bench/native -name '*.cc' -o -name '*.c' -o -name '*.h')

# The parts that threads share.
TSAN_PATTERN := scheduler|pool|stream|engine|constrain_mask
TSAN_TESTS = $(shell ls tests/native | sed -n 's/_test\.cc$$/_test/p' | grep -E '$(TSAN_PATTERN)')
# Kernels with very random addresses need this for TSan.
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)

CMAKE_CONFIGURE = cmake -S . -G Ninja --log-level=WARNING -B
CTEST = ctest --output-on-failure -j $(JOBS) --test-dir

STAGES := install-dev lint native-tests asan-tests tsan-tests python-tests e2e-tests

.PHONY: all install demo package image test arm-tests swiftshader-tests fresh-machine bench bench-text format clean $(STAGES)
.DEFAULT_GOAL := all

all: install

install:
	./install.sh

demo: install
	PYTHONPATH=python $(PYTHON) tools/demo.py

package: install
	$(PYTHON) tools/package.py --variant $(VARIANT)

image: install
	$(PYTHON) tools/package.py --variant $(VARIANT) --image

bench: install-dev
	$(PYTHON) -m pip install --quiet -r requirements-bench.txt
	$(CMAKE_CONFIGURE) build
	PYTHONPATH=python $(PYTHON) bench/run.py

bench-text: install-dev
	$(CMAKE_CONFIGURE) build
	cmake --build build --target constrain_tool jinja_tool
	$(PYTHON) bench/text.py

test:
	@set -e; for stage in $(STAGES); do \
	  echo "==> $$stage"; start=$$(date +%s); \
	  $(MAKE) --no-print-directory $$stage; \
	  echo "==> $$stage took $$(($$(date +%s) - start)) s"; \
	done

fresh-machine: install-dev
	$(PYTHON) tools/fresh_machine.py

install-dev:
	./install.sh --dev

lint:
	bash -n install.sh && sh -n run.sh && bash -n .ci/run && sh -n tools/swiftshader.sh
	venv/bin/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

# CI_FULL=1 adds the slow ones.
native-tests:
	$(CMAKE_CONFIGURE) build -DVLLM_SLOW_TESTS=$(if $(CI_FULL),ON,OFF)
	cmake --build build
	$(CTEST) build

asan-tests:
	$(CMAKE_CONFIGURE) build-asan -DVLLM_VULKAN=OFF -DVLLM_SANITIZE=address,undefined
	cmake --build build-asan
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(CTEST) build-asan

tsan-tests:
	$(CMAKE_CONFIGURE) build-tsan -DVLLM_VULKAN=OFF -DVLLM_SANITIZE=thread
	cmake --build build-tsan --target $(TSAN_TESTS)
	$(FIXED_ADDRESSES) $(CTEST) build-tsan --no-tests=error -R '$(TSAN_PATTERN)'

# Of these processors the first has NEON alone, the second dotprod as well, the last all that qemu knows. Each path that
# a processor has is compared with the reference device.
ARM_PROCESSORS := cortex-a53 cortex-a76 max
ARM_TESTS := pool_test formats_test reference_device_test cpu_matmul_test device_conformance_test delta_net_test
ARM_PATTERN = ^($(shell echo isa_objects_test $(ARM_TESTS) | tr ' ' '|'))$$

arm-tests:
	$(CMAKE_CONFIGURE) build-arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DVLLM_DEVICE_ONLY=ON
	cmake --build build-arm --target $(ARM_TESTS)
	@set -e; for processor in $(ARM_PROCESSORS); do echo "==> $$processor"; \
	  QEMU_CPU=$$processor $(CTEST) build-arm --no-tests=error -R '$(ARM_PATTERN)'; \
	done

# Both names of the variable, for loaders old and new.
SWIFTSHADER := .cache/swiftshader/vk_swiftshader_icd.json
SWIFTSHADER_TESTS := vulkan_device_test delta_net_test device_conformance_test

$(SWIFTSHADER):
	tools/swiftshader.sh $(@D)

swiftshader-tests: $(SWIFTSHADER)
	$(CMAKE_CONFIGURE) build
	cmake --build build --target $(SWIFTSHADER_TESTS)
	@set -e; for test in $(SWIFTSHADER_TESTS); do \
	  echo "==> $$test on SwiftShader"; \
	  VLLM_TEST_DEVICES=vulkan VK_DRIVER_FILES=$(abspath $<) VK_ICD_FILENAMES=$(abspath $<) build/tests/native/$$test; \
	done

python-tests:
	$(PYTHON) -m pytest tests/python

e2e-tests:
	$(PYTHON) -m pytest tests/e2e

format:
	venv/bin/clang-format -i $(CXX_SOURCES)
	$(PYTHON) -m ruff check --fix --select I
	$(PYTHON) -m ruff format

clean:
	rm -rf build build-asan build-tsan build-arm lib venv dist python/vllm_backend/backend_pb2*
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
