#!/bin/sh
# Writes test/data/abi, to which test/api/check_abi_gate.sh compares: `make abi-baseline` runs this.
# It is for a change that only adds, or that is made together with a new soname.
. "$(dirname "$0")/../lib.sh"
. test/api/abi_lib.sh

if ! command -v abidw >/dev/null 2>&1; then
    echo "abi-baseline: there is no abidw here; Debian's package is abigail-tools" >&2
    exit 1
fi
mkdir -p $abi
cp include/specbatch.h "$tmp" && cp src/specbatch.map "$tmp/map" && standin "$tmp" &&
    described "$tmp/libspecbatch.so" >"$tmp/abi" && [ -s "$tmp/abi" ] &&
    headers bare include/specbatch.h >"$tmp/bare" || exit 1
cp "$tmp/abi" $abi/libspecbatch.abi && cp "$tmp/bare" "$(frozen)" &&
    echo "$abi/libspecbatch.abi $(frozen)"
