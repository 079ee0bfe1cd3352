#!/bin/sh
# Runs every check that needs a GPU, and every measurement, in one run that ends by itself:
#
#   sh test/cuda/run_on_gpu.sh [all | correctness | timing]
#
# It needs a shell, a driver, this checkout and a build of it. It does without make, which would
# build everything again in a fresh checkout.
#   B        the build: build/gpu-bundle if it is there (`make gpu-bundle`, perhaps on another
#            machine), else build/cpu
#   OUT      the folder of results.txt (build/gpu), which gets every line as it comes, so that a run
#            that is killed leaves what it found
#   BUDGET   the seconds that the whole run may take; a part has its own limit, or what is left
#   PYTHON   the Python among whose packages NVIDIA's libraries are looked for
#   TINY=1   small sizes, for the programs of the simulator with which this script is tested
# Without a device it fails, since a check that did not run has not passed.
mode=${1:-all}
case $mode in
all | correctness | timing) ;;
*) echo "usage: run_on_gpu.sh [all | correctness | timing]" >&2 && exit 2 ;;
esac
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. test/cuda/gpu.sh
. test/bench/shapes.sh
B=${B:-$(gpu_build)} OUT=${OUT:-build/gpu} BUDGET=${BUDGET:-545}
results=$OUT/results.txt
began=$(date +%s)
mkdir -p "$OUT" && : >"$results" || exit 1
tmp=$(mktemp -d) || exit 1
names= scratch=
clean_up() { rm -rf "$tmp" ${scratch:+"$scratch"}; }
trap clean_up EXIT
trap 'say "FAIL check_gpu: stopped"; report; exit 1' INT TERM

say() { echo "$@" | tee -a "$results"; }
left() { echo $((BUDGET - ($(date +%s) - began))); }
label() { while IFS= read -r line; do printf '[%s] %s\n' "$1" "$line"; done | tee -a "$results"; }

# run SECONDS NAME COMMAND...: runs a command for at most so long. Its lines go to $tmp/NAME.log,
# its exit status and seconds to $tmp/NAME.end.
run() {
    limit=$(left)
    [ "$limit" -lt "$1" ] || limit=$1
    name=$2 since=$(date +%s)
    shift 2
    if [ "$limit" -lt 2 ]; then
        say "[$name] no time left"
        echo "late 0" >"$tmp/$name.end"
        return
    fi
    { timeout -k 5 "$limit" "$@" 2>&1; echo $? >"$tmp/$name.rc"; } |
        tee "$tmp/$name.log" | label "$name"
    echo "$(cat "$tmp/$name.rc") $(($(date +%s) - since))" >"$tmp/$name.end"
}
# part SECONDS NAME COMMAND...: runs one part; `also` runs it beside others, until `wait`.
part() {
    names="$names $2"
    run "$@"
}
also() {
    names="$names $2"
    run "$@" &
}
count() { grep -c "^$1 " "$tmp/$2.log" 2>/dev/null || :; }

# verdict NAME: one word about a part. It is CUT if its time was over before it ended, LATE if its
# time was over before it began, and NONE if it ended well but checked nothing, because it skipped
# everything or had no test. These three are failures of a correctness part; a timing part may have
# them.
verdict() {
    read -r rc seconds <"$tmp/$1.end" 2>/dev/null || { rc=none seconds=0; }
    case $rc in
    0)
        if grep -q '^FAIL ' "$tmp/$1.log"; then
            echo "FAIL"
        elif grep -q '^SKIP all' "$tmp/$1.log"; then
            echo "NONE"
        elif ! is_timing "$1" && ! grep -q '^ok  ' "$tmp/$1.log"; then
            echo "NONE"
        else
            echo "ok"
        fi
        ;;
    124 | 137) echo "CUT" ;;
    late) echo "LATE" ;;
    *) echo "FAIL" ;;
    esac
}
is_timing() { case $1 in E* | bench | ncu | memcheck-* | racecheck-*) ;; *) return 1 ;; esac; }
report() {
    say
    say "$(printf '%-18s %-6s %6s %6s %7s %7s' part result passed failed skipped seconds)"
    for name in $names; do
        word=$(verdict "$name")
        seconds=$(cut -d' ' -f2 "$tmp/$name.end" 2>/dev/null)
        say "$(printf '%-18s %-6s %6s %6s %7s %7s' "$name" "$word" "$(count 'ok  ' "$name")" \
            "$(count FAIL "$name")" "$(count SKIP "$name")" "$seconds")"
        case $word in
        ok) ;;
        FAIL) echo "$name" >>"$tmp/bad" ;;
        *) is_timing "$name" || echo "$name" >>"$tmp/bad" ;;
        esac
    done
    say "$(($(date +%s) - began)) s of $BUDGET"
    if [ -e "$tmp/bad" ]; then
        say "FAIL check_gpu: $(tr '\n' ' ' <"$tmp/bad")"
    else
        say "ok   check_gpu"
    fi
}
stop() {
    say "FAIL check_gpu: $1; nothing else was tried"
    exit 1
}

# ---- The machine, and whether a device opens.
export B SB_TEST_DEVICE=cuda SB_TEST_REQUIRE_DEVICE=1
[ -z "$TINY" ] || export SB_TEST_SIZE=small
checkout=$(git rev-parse --short HEAD 2>/dev/null || echo without git)
say "date       $(date -u +%Y-%m-%dT%H:%MZ), checkout $checkout"
say "build      $B"
if [ -e "$B/about.txt" ]; then
    label build <"$B/about.txt"
    theirs=$(sed -n 's/^commit  *//p' "$B/about.txt") ours=$(gpu_commit)
    [ "$theirs" = "$ours" ] || say "WARN       the bundle is of $theirs, the checkout of $ours"
fi
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
say "machine    $(uname -srm), $(getconf _NPROCESSORS_ONLN) processors, $libc"
if command -v nvidia-smi >/dev/null 2>&1; then
    facts=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit
    timeout 10 nvidia-smi --query-gpu=$facts --format=csv,noheader 2>&1 | label gpu
else
    say "[gpu] there is no nvidia-smi"
fi
[ -e "$B/libspecbatch_cuda.so" ] || stop "no CUDA module in $B (make gpu-bundle, or make CUDA=1)"
driver_path=$(gpu_driver_path)
LD_LIBRARY_PATH=$(gpu_library_path)
export LD_LIBRARY_PATH
say "libraries  LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
if [ -z "$TINY" ]; then
    ldd "$B/libspecbatch_cuda.so" 2>&1 | label ldd
    [ ! -x "$B/gpu/experiments" ] || "$B/gpu/experiments" --libraries 2>&1 | label libraries
    part 90 device "$B/test/cuda/test_module" the_module
    case $(verdict device) in
    ok) ;;
    CUT) stop "the device did not open within $limit s" ;;
    *) stop "no device opens" ;;
    esac
fi

# ---- Checkpoints that are holes, whose weights the benches make on the device.
if scratch=$(gpu_scratch); then
    for model in qwen3-8b qwen3-0.6b; do
        checkpoint "$B/test/bench/make_checkpoint" "$scratch/$model" "$model" ${TINY:+16 12} \
            --sparse 2>&1 | label bench
    done
fi

# ---- A draft's steps, alone: in their one launch blocks wait for each other, and one that hung
# would take time from whatever ran beside it. No other part can tell that a draft is wrong, since
# it changes no token. A model that is its own draft has nearly all of its proposals accepted.
if [ "$mode" != timing ] && [ -n "$scratch" ]; then
    if [ -n "$TINY" ]; then
        set -- --batches 1 --prompt 12 --new 12
    else
        set -- --batches 1,2,4,8 --prompt 64 --new 64
    fi
    for temperature in 0 0.8; do
        part 40 "draft-steps-$temperature" "$B/test/bench/bench_gpu" "$scratch/qwen3-0.6b" \
            --draft "$scratch/qwen3-0.6b" --fill 1 --accept none --least 4.5 \
            --temperature "$temperature" --module "$(gpu_module)" "$@"
        [ "$(verdict "draft-steps-$temperature")" != CUT ] ||
            stop "the steps of a draft did not end within $limit s"
    done
fi

# ---- Correctness: all parts at once. They have all the time if nothing else is to be done.
if [ "$mode" != timing ]; then
    if [ "$mode" = correctness ]; then most=$BUDGET; else most=110; fi
    also "$most" kernels "$B/gpu/kernel_tests" test_cuda_kernels
    also "$most" kernels-sample "$B/gpu/kernel_tests" test_cuda_sample
    also "$most" kernels-attention "$B/gpu/kernel_tests" test_cuda_attention
    also "$most" kernels-mma "$B/gpu/kernel_tests" test_cuda_mma
    also "$most" kernels-attend-mma "$B/gpu/kernel_tests" test_cuda_attend_mma
    also "$most" kernels-quant "$B/gpu/kernel_tests" test_cuda_quant
    also "$most" kernels-mix "$B/gpu/kernel_tests" test_cuda_mix
    also "$most" kernels-draft "$B/gpu/kernel_tests" test_cuda_draft
    also "$most" goldens-f32 "$B/gpu/model_tests" test_goldens f32_class
    also "$most" goldens-16bit "$B/gpu/model_tests" test_goldens 16_bit
    also "$most" long-prompts "$B/gpu/model_tests" test_long_prompts
    also "$most" devices "$B/gpu/model_tests" test_devices
    also "$most" requests-f32 "$B/test/contract/test_requests"
    also "$most" requests-16bit env SB_TEST_COMPUTE=16bit "$B/test/contract/test_requests"
    for i in 0 1 2 3; do
        also "$most" "contract-f32-$i" env SB_TEST_PARTS=4 SB_TEST_PART=$i \
            "$B/test/contract/test_contract"
    done
    for i in 0 1; do
        also "$most" "contract-16bit-$i" env SB_TEST_PARTS=2 SB_TEST_PART=$i SB_TEST_COMPUTE=16bit \
            "$B/test/contract/test_contract"
    done
    wait
fi

# ---- Timing: one part after the other, with nothing beside it.
if [ "$mode" != correctness ]; then
    part 25 E7-launchers "$B/gpu/experiment_launch" ${TINY:+--tiny}
    part 60 E1-E3-products "$B/gpu/experiments" ${TINY:+--tiny}
    if [ -n "$TINY" ]; then set -- --tiny; else set -- qwen3-8b bf16; fi
    part 40 E6-prefill "$B/gpu/experiment_prefill" "$@"
    if [ -n "$scratch" ]; then
        if [ -n "$TINY" ]; then
            set -- --batches 1 --prompt 12 --new 12
        else
            set -- --batches 1,8,32 --new 320
        fi
        part 200 bench "$B/test/bench/bench_gpu" "$scratch/qwen3-8b" \
            --draft "$scratch/qwen3-0.6b" --fill 1 --accept 0.6,0.8 --gbps "$(gpu_bandwidth)" \
            --module "$(gpu_module)" "$@"
    else
        say "[bench] no folder for checkpoints"
    fi
    # NVIDIA's tools bring libraries of their own, which must not meet those of Python's packages.
    # The library's own kernels need neither.
    LD_LIBRARY_PATH=$driver_path
    part 30 ncu sh test/cuda/tools.sh ncu "$B/gpu/experiments" --profile
    tests=$B/gpu/kernel_tests
    part 45 memcheck-kernels sh test/cuda/tools.sh memcheck "$tests" test_cuda_kernels
    part 45 memcheck-mma sh test/cuda/tools.sh memcheck "$tests" test_cuda_mma
    part 45 memcheck-sample sh test/cuda/tools.sh memcheck "$tests" test_cuda_sample
    part 45 racecheck-sample sh test/cuda/tools.sh racecheck "$tests" test_cuda_sample test_filters
    part 45 racecheck-gemm sh test/cuda/tools.sh racecheck "$tests" test_cuda_mma test_gemm_shapes
    part 45 racecheck-attend sh test/cuda/tools.sh racecheck "$tests" test_cuda_attend_mma \
        test_attend_passes
fi
report
[ ! -e "$tmp/bad" ]
