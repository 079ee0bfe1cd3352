#!/bin/sh
# The CUDA backend and the real kernels on a simulated device: goldens, failures, mutations and the contract, two
# processes at a time. `make check-cudasim` builds and runs it alone. What it cannot prove: docs/cuda.md.
root=$(cd "$(dirname "$0")/.." && pwd)
B=${B:-build/cpu}
cd "$root" || exit 1
if [ ! -x "$B/cudasim/test_contract" ]; then
    echo "SKIP cudasim: not built (make check-cudasim; a sanitized build has none)"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export B SB_TEST_DEVICE=cuda SB_TEST_SIZE=small

# run LOG PART: the programs on standard input, with their arguments, one after the other. A test's name says where
# it ran.
run() {
    log=$1
    export SB_TEST_PART="$2"
    while read -r program arguments; do
        "$B/cudasim/$program" $arguments >"$tmp/$log.one" 2>&1
        rc=$?
        sed 's/^\(ok  \|FAIL\|SKIP\) \(test_\)\{0,1\}/\1 cudasim_/' "$tmp/$log.one" >>"$tmp/$log"
        [ $rc -eq 0 ] || grep -q '^FAIL ' "$tmp/$log.one" || echo "FAIL cudasim_$program: exit status $rc" >>"$tmp/$log"
    done
}
run a 0 <<END &
test_contract
test_mutations
test_goldens f32_class
END
run b 1 <<END
test_contract
test_backend
test_prefill
test_goldens 16_bit
experiments --tiny
experiment_prefill --tiny
END
wait
cat "$tmp/a" "$tmp/b"
! grep -q '^FAIL ' "$tmp/a" "$tmp/b"
