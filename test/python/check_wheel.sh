#!/bin/sh
# The wheel as a stranger has it: made by `make wheel`, installed in a fresh environment, with no
# compiler and no library of this tree in reach, it passes the package's tests; with numpy too.
# This needs PyPI. TRANSFORMERS says by what tokens are compared with those of Transformers:
#   a Python   which has torch and transformers, build/peers-venv/bin/python for example
#   install    the newest are installed in the fresh environment: 3 GB to fetch, 6 GB on the disk
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
wheel=$(ls build/wheel/specbatch-*-py3-none-manylinux*.whl)
"$tmp/venv/bin/pip" install -q --no-index "$wheel" >"$tmp/out" 2>&1
verdict wheel_is_installed_without_an_index
for licence in LICENSE LICENSE.yajl; do
    $PYTHON -m zipfile -l "$wheel" | grep -q "/$licence " || echo "no $licence" >>"$tmp/out"
done
verdict wheel_has_the_licences_of_what_is_in_it

# installed PYTHON FOLDER ARGUMENTS...: runs a Python that finds the package where it is installed,
# or in the folder.
mkdir "$tmp/none"
installed() {
    python=$1 folder=$2
    shift 2
    (unset SPECBATCH_LIBRARY; PATH="$tmp/none" PYTHONPATH="$folder" "$python" "$@")
}
installed "$tmp/venv/bin/python" "$tmp/none" test/python/run_tests.py

compared=python_tokens_are_those_of_transformers
case $TRANSFORMERS in
"")
    echo "SKIP $compared: TRANSFORMERS=install, or a Python that has them, compares"
    exit ;;
install)
    with=$tmp/venv/bin/python
    "$with" -m pip install -q torch transformers >"$tmp/log" 2>&1 ;;
*)
    with=$TRANSFORMERS ;;
esac
"$with" -c 'import torch, transformers' 2>>"$tmp/log" || {
    echo "SKIP $compared: $(tail -n 1 "$tmp/log")"
    exit
}
"$tmp/venv/bin/pip" install -q --no-index --no-deps --target "$tmp/package" "$wheel"
installed "$with" "$tmp/package" test/python/compare_transformers.py >"$tmp/log" 2>&1 ||
    cp "$tmp/log" "$tmp/out"
grep -E '^torch|compared, all equal$' "$tmp/log" | sed 's/^/     /'
verdict $compared
