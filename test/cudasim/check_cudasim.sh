#!/bin/sh
# The CUDA backend and its real kernels on a simulated device: logits of small models, failures,
# mutations and the contract. `make check-cudasim` builds and runs this alone. docs/cuda.md says
# what it cannot prove. A simulated device is slow, so `make check` runs a quarter of the random
# traces here, and `make release-check` all of them.
#
# The programs run side by side, as many as there are processors (or JOBS), those that take longest
# first. xargs runs `check_cudasim.sh --one LINE` for each line of the list.

# one NUMBER COMPUTE PART PROGRAM [ARGUMENTS...]: a line of the list. COMPUTE is the class in which
# models are opened, PART the part of the contract's traces that this process runs, and PROGRAM is
# in $B/cudasim. A test's name gets the prefix cudasim_, which says where it ran. The output goes to
# the file NUMBER of the folder $parts.
one() {
    log=$parts/$1 compute=$2 part=$3 program=$4
    shift 4
    SB_TEST_COMPUTE=$compute SB_TEST_PART=$part "$B/cudasim/$program" "$@" >"$log.one" 2>&1
    status=$?
    where=cudasim_$([ "$compute" = f32 ] || echo "${compute}_")
    sed "s/^\(ok  \|FAIL\|SKIP\) \(test_\)\{0,1\}/\1 $where/" "$log.one" >"$log"
    [ $status -eq 0 ] || grep -q '^FAIL ' "$log" ||
        echo "FAIL $where$program: exit status $status" >>"$log"
}
if [ "$1" = --one ]; then
    shift
    one "$@"
    exit
fi

. "$(dirname "$0")/../lib.sh"
if [ ! -x "$B/cudasim/test_contract" ]; then
    echo "SKIP cudasim: not built (make check-cudasim; a sanitized build has none)"
    exit
fi
export B parts="$tmp" SB_TEST_DEVICE=cuda SB_TEST_SIZE=small
[ -n "$RELEASE" ] || export SB_TEST_TRACES="${SB_TEST_TRACES:-25}"

cat >"$tmp/list" <<END
f32 0 test_draft_steps
f32 0 test_prefill
f32 0 test_contract
f32 0 test_backend
f32 1 test_contract
f32 0 test_requests
f32 0 test_mutations
f32 0 test_goldens 16_bit
f32 0 test_span_mutations
16bit 0 test_devices
16bit 0 test_contract test_a_few
16bit 1 test_contract test_a_few
f32 0 experiment_launch --tiny
f32 0 test_goldens f32_class
16bit 1 test_contract test_every_type_of_weights
16bit 0 test_contract test_every_type_of_weights
f32 0 test_devices
16bit 0 test_session
f32 0 experiments --tiny
f32 0 test_products
f32 0 test_creation
f32 0 test_weight_memory
f32 0 test_quant_weights
f32 0 experiment_prefill --tiny
END
count=$(grep -c . "$tmp/list")
cat -n "$tmp/list" | xargs -L 1 -P "${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)}" \
    sh "$root/test/cudasim/check_cudasim.sh" --one
for number in $(seq "$count"); do
    cat "$tmp/$number" || echo "FAIL cudasim: $(sed -n "${number}p" "$tmp/list") was not run"
done >"$tmp/results" 2>/dev/null
cat "$tmp/results"
! grep -q '^FAIL ' "$tmp/results"
