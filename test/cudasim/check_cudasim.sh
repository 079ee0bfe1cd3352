#!/bin/sh
# The CUDA backend and its real kernels on a simulated device: logits of small models, failures,
# mutations and the contract, as two processes at a time. `make check-cudasim` builds and runs this
# alone. docs/cuda.md says what it cannot prove. A simulated device is slow, so `make check` runs a
# third of the random traces here, and `make release-check` all of them.
. "$(dirname "$0")/../lib.sh"
if [ ! -x "$B/cudasim/test_contract" ]; then
    echo "SKIP cudasim: not built (make check-cudasim; a sanitized build has none)"
    exit
fi
export B SB_TEST_DEVICE=cuda SB_TEST_SIZE=small
[ -n "$RELEASE" ] || export SB_TEST_TRACES="${SB_TEST_TRACES:-34}"

# run LOG PART: runs the lines of its standard input, one after the other, into $tmp/LOG. A line is
# the class in which models are opened, a program of $B/cudasim, and the program's arguments. PART
# is the part of the contract's traces that this process runs. A test's name gets the prefix
# cudasim_, which says where it ran.
run() {
    log=$1
    export SB_TEST_PART="$2"
    while read -r compute program arguments; do
        SB_TEST_COMPUTE=$compute "$B/cudasim/$program" $arguments >"$tmp/$log.one" 2>&1
        status=$?
        where=cudasim_$([ "$compute" = f32 ] || echo "${compute}_")
        sed "s/^\(ok  \|FAIL\|SKIP\) \(test_\)\{0,1\}/\1 $where/" "$tmp/$log.one" >>"$tmp/$log"
        [ $status -eq 0 ] || grep -q '^FAIL ' "$tmp/$log.one" ||
            echo "FAIL $where$program: exit status $status" >>"$tmp/$log"
    done
}
run a 0 <<END &
f32 test_contract
f32 test_mutations
f32 test_span_mutations
f32 test_goldens f32_class
f32 test_requests
16bit test_contract test_a_few
16bit test_contract test_every_type_of_weights
END
run b 1 <<END
f32 test_contract
f32 test_backend
f32 test_devices
16bit test_devices
f32 test_draft_steps
f32 test_products
f32 test_prefill
f32 test_goldens 16_bit
f32 experiments --tiny
f32 experiment_launch --tiny
f32 experiment_prefill --tiny
16bit test_contract test_a_few
16bit test_contract test_every_type_of_weights
16bit test_session
END
wait
cat "$tmp/a" "$tmp/b"
! grep -q '^FAIL ' "$tmp/a" "$tmp/b"
