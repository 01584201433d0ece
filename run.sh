#!/bin/sh
# Starts the backend with the arguments given, as LocalAI does: run.sh --addr HOST:PORT
# In an installation its Python is that of venv/. A package has site-packages/ instead, with the extension modules of
# several Pythons, and takes the first Python on PATH that is one of them.
set -eu
here=$(dirname "$(readlink -f "$0")")
case $(uname) in
  Darwin) library=libvllm.dylib ;;
  *) library=libvllm.so ;;
esac
export VLLM_CPP_LIBRARY="${VLLM_CPP_LIBRARY:-$here/lib/$library}"
modules=$here/python
alone=
found=

# Whether the package has the extension modules of this Python.
is_served() {
  suffix=$("$1" -S -c 'import importlib.machinery as m; print(m.EXTENSION_SUFFIXES[0])' 2>/dev/null) || return 1
  found="$found $1 (modules are *$suffix)"
  [ -e "$here/site-packages/_cffi_backend$suffix" ]
}

case $here in
  *:*)
    echo "run.sh: the folder $here has a colon in its name, at which Python splits paths; rename it" >&2
    exit 1
    ;;
esac

if [ -d "$here/site-packages" ]; then
  modules=$modules:$here/site-packages
  alone=-S # what else that Python has installed must not stand in for ours
  for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 ""; do
    if [ -z "$python" ]; then
      echo "run.sh: no Python 3.10 to 3.14 that this package has modules for is on PATH, found:${found:- none};" \
        "install one (Debian: apt-get install python3)" >&2
      exit 1
    fi
    is_served "$python" && break
  done
else
  python=$here/venv/bin/python
  [ -x "$python" ] || python=python3
fi
export PYTHONSAFEPATH=1 # modules of the working directory are none of ours
export PYTHONUTF8=1     # as the host's paths and texts are, whatever the locale says
export PYTHONPATH="$modules${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" $alone -m vllm_backend "$@"
