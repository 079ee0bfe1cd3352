#!/bin/sh
# The Python package, from the tree and with the library that was built: its declarations are those
# of the header, and its own tests pass. With mypy installed its types are checked too, and those
# of the calls in docs/python.md.
. "$(dirname "$0")/../lib.sh"
if ! $PYTHON -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "SKIP python: $PYTHON is not Python 3.9 or later"
    exit
fi
$PYTHON pkgconfig/python/make_abi.py --check >"$tmp/out" 2>&1
verdict python_declarations_are_those_of_the_header

if $PYTHON -m mypy --version >/dev/null 2>&1; then
    $PYTHON -m mypy --config-file pkgconfig/python/pyproject.toml --cache-dir "$tmp/mypy" \
        pkgconfig/python/specbatch >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
    verdict python_types
    MYPYPATH=pkgconfig/python $PYTHON -m mypy --config-file pkgconfig/python/pyproject.toml \
        --cache-dir "$tmp/mypy" test/python/typed_callers.py >"$tmp/log" 2>&1 ||
        cp "$tmp/log" "$tmp/out"
    verdict python_types_of_options
    awk '/^```/ { inside = $0 == "```python"; next } inside' docs/python.md >"$tmp/page.py"
    MYPYPATH=pkgconfig/python $PYTHON -m mypy --cache-dir "$tmp/mypy" "$tmp/page.py" \
        >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
    verdict python_types_of_the_page
else
    echo "SKIP python_types: no mypy here"
    echo "SKIP python_types_of_options: no mypy here"
    echo "SKIP python_types_of_the_page: no mypy here"
fi

if [ -n "$SAN" ]; then
    echo "SKIP python_tests: a sanitized library runs in sanitized programs only"
    exit
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/pkgconfig/python \
    SPECBATCH_LIBRARY=$(realpath "$B")/libspecbatch.so.1 $PYTHON test/python/run_tests.py
