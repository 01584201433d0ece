#!/bin/sh
# Starts the backend with the arguments given, as LocalAI does: run.sh --addr HOST:PORT
set -eu
here=$(dirname "$(readlink -f "$0")")
case $(uname) in
  Darwin) library=libvllm.dylib ;;
  *) library=libvllm.so ;;
esac
export VLLM_CPP_LIBRARY="${VLLM_CPP_LIBRARY:-$here/lib/$library}"
export PYTHONPATH="$here/python${PYTHONPATH:+:$PYTHONPATH}"
python=$here/venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m vllm_backend "$@"
