#!/bin/sh
# Writes the present version's part of test/data/abi, to which test/api/check_abi_gate.sh compares:
# `make abi-baseline` runs this. It is for a change that only adds, or that is made together with a
# new soname.
. "$(dirname "$0")/../lib.sh"
. test/api/abi_lib.sh

mkdir -p $abi
headers bare include/specbatch.h >"$tmp/bare" && cp "$tmp/bare" "$(present).h" &&
    cp src/specbatch.map "$(present).map" && echo "$(present).h $(present).map"
