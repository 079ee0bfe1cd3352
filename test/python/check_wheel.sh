#!/bin/sh
# The wheel as a stranger has it: made by `make wheel`, installed in a fresh environment, with no
# compiler and no library of this tree in reach, it passes the package's tests; with numpy too.
# Tokens are compared with those of Transformers where it can be installed. This needs PyPI.
. "$(dirname "$0")/../lib.sh"
slow wheel
if ! $PYTHON -m venv "$tmp/venv" >/dev/null 2>&1 ||
    ! "$tmp/venv/bin/pip" install -q numpy >/dev/null 2>&1; then
    echo "SKIP wheel: no venv, or PyPI is out of reach"
    exit
fi
run_make B="$B" SAN= CUDA=0 PYTHON="$PYTHON" wheel >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
verdict wheel_is_made
[ $failed = 0 ] || exit
"$tmp/venv/bin/pip" install -q --no-index build/wheel/specbatch-*-py3-none-manylinux*.whl \
    >"$tmp/out" 2>&1
verdict wheel_is_installed_without_an_index

mkdir "$tmp/none"
installed() {
    (unset SPECBATCH_LIBRARY; PATH="$tmp/none" PYTHONPATH="$tmp/none" "$tmp/venv/bin/python" "$@")
}
installed test/python/run_tests.py

if "$tmp/venv/bin/pip" install -q torch transformers >/dev/null 2>&1; then
    installed test/python/compare_transformers.py >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
    verdict python_tokens_are_those_of_transformers
else
    echo "SKIP python_tokens_are_those_of_transformers: torch cannot be installed here"
fi
