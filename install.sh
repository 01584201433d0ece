#!/usr/bin/env bash
# Makes this folder ready to run: Debian packages, Python environment in venv/, gRPC stubs, lib/libvllm.so; then
# loads a tiny model to see that it works. Does only what is not done yet, so it may be run again at any time, also
# without a network. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: install.sh [--dev]

  --dev   also install what tests and checks need (packages-dev.txt, requirements-dev.txt)

Debian packages are installed as root or with passwordless sudo; otherwise those missing are named.
CMAKE_BUILD_PARALLEL_LEVEL sets the number of compile jobs.
TEXT
}

packages=(packages.txt)
requirements=(requirements.txt requirements-build.txt)
for argument in "$@"; do
  case $argument in
    --dev) packages+=(packages-dev.txt) requirements+=(requirements-dev.txt) ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
venv_python=venv/bin/python

step() { doing=$* && printf '==> %s\n' "$*"; }
fail() { doing= && printf 'install.sh: %s\n' "$*" >&2 && exit 1; }
at_end() {
  [ $? -eq 0 ] || [ -z "$doing" ] ||
    fail "this failed: $doing; the lines above say why ($(free_here) are free on this disk), and another run goes on" \
      "from here"
}
free_here() { df --human-readable --output=avail . 2>/dev/null | sed -n '2s/^ *//p'; }
doing=
trap at_end EXIT
checksum() { cat "$@" | cksum; }

# The first Python on PATH that is new enough, "" when there is none.
find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
}

# Whether what a Debian package brings is there, wherever it came from.
have() {
  case $1 in
    python3) [ -n "$(find_python)" ] ;;
    python3-venv) command -v uv || "$(find_python)" -c 'import ensurepip, venv' ;;
    g++ | cmake | npm) command -v "$1" ;;
    ninja-build) command -v ninja ;;
    *) ! command -v dpkg-query || [ "$(dpkg-query -W -f '${db:Status-Status}' "$1")" = installed ] ;;
  esac >/dev/null 2>&1
}

install_packages() {
  local package missing=() as_root=()
  for package in $(sed 's/#.*//' "${packages[@]}"); do
    have "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    step "Debian packages: all there"
    return
  fi
  command -v apt-get >/dev/null || fail "not found: ${missing[*]} (names of Debian packages); install them and run again"
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail "packages are missing; run this, then install.sh again:
  sudo apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo -n)
  fi
  step "Updating the package lists"
  "${as_root[@]}" apt-get update -qq || step "The package lists could not be updated, trying with those at hand"
  step "Installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# uv does not read pip's configuration, so an index that is only set there needs pip.
install_requirements() {
  local wanted all installed=venv/.requirements last=${requirements[${#requirements[@]} - 1]}
  wanted=$(checksum "${requirements[@]}")
  if "$venv_python" -c '' 2>/dev/null; then
    # What --dev installed satisfies a run without it.
    all=$(checksum requirements.txt requirements-build.txt requirements-dev.txt)
    case $(cat "$installed" 2>/dev/null) in
      "$wanted" | "$all")
        step "Python environment: all there, in venv/"
        return
        ;;
    esac
  else
    local python
    python=$(find_python)
    step "Creating venv/ with $("$python" --version)"
    rm -rf venv
    if command -v uv >/dev/null; then
      uv venv --quiet --python "$python" venv
    else
      "$python" -m venv venv
    fi
  fi
  step "Installing $last into venv/"
  if ! command -v uv >/dev/null || ! uv pip install --quiet --python "$venv_python" -r "$last"; then
    "$venv_python" -m pip --version >/dev/null 2>&1 || "$venv_python" -m ensurepip >/dev/null
    "$venv_python" -m pip install --quiet --disable-pip-version-check -r "$last"
  fi
  echo "$wanted" >"$installed"
}

# The generator imports its neighbour as a top-level module; here it is one of the package.
generate_stubs() {
  local wanted out=python/vllm_backend generated=venv/.stubs
  wanted=$(checksum backend.proto requirements.txt requirements-build.txt)
  if [ "$(cat "$generated" 2>/dev/null)" = "$wanted" ] && [ -e $out/backend_pb2.py ] &&
    [ -e $out/backend_pb2.pyi ] && [ -e $out/backend_pb2_grpc.py ]; then
    step "gRPC stubs: up to date"
    return
  fi
  step "Generating the gRPC stubs"
  "$venv_python" -m grpc_tools.protoc -I. --python_out=$out --pyi_out=$out --grpc_python_out=$out backend.proto
  sed -i.orig 's/^import backend_pb2 as/from vllm_backend import backend_pb2 as/' $out/backend_pb2_grpc.py
  rm $out/backend_pb2_grpc.py.orig
  echo "$wanted" >"$generated"
}

build_library() {
  local built installed=lib/libvllm.so
  # A build folder that came with a copy of the tree names the old place.
  if [ -e build/CMakeCache.txt ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" build/CMakeCache.txt; then
    rm -rf build
  fi
  if [ ! -e build/build.ninja ]; then
    step "Configuring the library in build/"
    cmake -S . -B build -G Ninja --log-level=WARNING
  fi
  step "Building the library, where something changed"
  cmake --build build --target vllm
  built=build/libvllm.so
  [ -e $built ] || { built=build/libvllm.dylib && installed=lib/libvllm.dylib; }
  if ! cmp -s $built $installed; then
    # A process that has the old file mapped keeps it: the new one takes its name.
    mkdir -p lib
    cp $built $installed.new
    mv $installed.new $installed
    step "Installed $installed"
  fi
}

install_packages
install_requirements
generate_stubs
build_library
step "Testing the installation"
./run.sh selftest || fail "the installation does not work; the lines above say why"
step "Ready: ./run.sh starts the backend"
