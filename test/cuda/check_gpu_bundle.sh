#!/bin/sh
# The scripts that run on a machine with a GPU, tried where there is none. Every program that they
# name is in the bundle, and a run passes only if every part of it did. The programs are replaced by
# scripts that only print, but for two tests at the end: the bench of decoding runs on the simulated
# device, and the real module runs without a device.
. "$(dirname "$0")/../lib.sh"
unset TINY BUDGET
run_make --no-print-directory gpu-bundle-list | sort >"$tmp/list"
scripts=$(ls test/cuda/*.sh | grep -v /check_)
grep -oh '\$B/[a-z_]*/[a-z_/]*' $scripts | sed 's|^\$B/||' | sort -u >"$tmp/named"
verdict gpu_bundle_has_every_program_that_a_script_names \
    "$([ -s "$tmp/named" ] || echo "none is named"; comm -13 "$tmp/list" "$tmp/named")"
verdict gpu_bundle_scripts_are_sound "$(for f in test/cuda/*.sh; do sh -n "$f" 2>&1; done)"

# stand_ins BODY: makes a build folder $tmp/b whose programs are all shell scripts with this body.
stand_ins() {
    rm -rf "$tmp/b" && mkdir -p "$tmp/b" && touch "$tmp/b/libspecbatch_cuda.so"
    while read -r program; do
        mkdir -p "$tmp/b/$(dirname "$program")"
        printf '#!/bin/sh\n%s\n' "$1" >"$tmp/b/$program" && chmod +x "$tmp/b/$program"
    done <"$tmp/list"
}
# run ARGUMENTS: runs the script with this build folder, into $tmp/log, and sets $rc to its exit
# status. results.txt must have the same lines, though parts that run at once may be in another
# order there.
run() {
    rm -rf "$tmp/results"
    B=$tmp/b OUT=$tmp/results sh test/cuda/run_on_gpu.sh "$@" >"$tmp/log" 2>&1
    rc=$?
    sort "$tmp/log" >"$tmp/sorted"
    sort "$tmp/results/results.txt" | cmp -s - "$tmp/sorted" ||
        echo "results.txt is not what the script said"
}
# has PATTERN, fails: each prints what is wrong with the run, if anything is.
has() { grep -q "$1" "$tmp/log" || { echo "no line like: $1"; cat "$tmp/log"; }; }
fails() { [ "$rc" -ne 0 ] || echo "exit status 0"; }

stand_ins 'echo "ok   all"'
verdict gpu_run_passes_where_every_part_does \
    "$(run; [ $rc -eq 0 ] || cat "$tmp/log"; has '^ok   check_gpu')"
printf '#!/bin/sh\n[ "$2" != f32_class ] || echo "FAIL all: of the test"\necho "ok   all"\n' \
    >"$tmp/b/gpu/model_tests"
verdict gpu_run_fails_with_one_part \
    "$(run correctness; fails; has '^goldens-f32  *FAIL'; has '^FAIL check_gpu: goldens')"
printf '#!/bin/sh\necho "ok   begun"\nsleep 1000\n' >"$tmp/b/gpu/model_tests"
verdict gpu_run_ends_by_itself_and_keeps_what_it_found \
    "$(export BUDGET=4; run all; fails; has '^goldens-f32  *CUT  *1 '
       has '^\[goldens-f32\] ok   begun'; has '^E7-launchers  *LATE')"
# A part ends well, but has checked nothing: it has skipped everything, or has said nothing.
for body in 'echo "SKIP all: no CUDA device"' 'echo "SKIP test_one: nothing to look at"' ':'; do
    stand_ins 'echo "ok   all"'
    printf '#!/bin/sh\n[ "$1" = test_cuda_mma ] || { echo "ok   all"; exit; }\n%s\n' "$body" \
        >"$tmp/b/gpu/kernel_tests"
    verdict "gpu_run_fails_where_a_part_checks_nothing ($body)" \
        "$(run correctness; fails; has '^kernels-mma  *NONE'; has '^FAIL check_gpu: kernels-mma $')"
done
stand_ins 'echo "SKIP test_the_module: it was not built"'
verdict gpu_run_stops_where_the_device_was_not_tried \
    "$(run; fails; has 'no device opens'; grep '^\[kernels\]' "$tmp/log")"
printf '#!/bin/sh\nsleep 1000\n' >"$tmp/b/test/cuda/test_module"
verdict gpu_run_says_that_a_device_took_too_long \
    "$(export BUDGET=5; run; fails; has 'did not open within [1-5] s')"
stand_ins 'echo "FAIL all: no CUDA device"; exit 1'
verdict gpu_run_stops_where_no_device_opens \
    "$(run; fails; has 'no device opens'; grep '^\[kernels\]' "$tmp/log")"

# Parts choose tests by a piece of their names. A piece that no test's name has must not pass.
if [ ! -x "$B/test/cuda/test_module" ]; then
    echo "SKIP gpu_part_without_a_test: $B/test/cuda/test_module is not built"
else
    "$B/test/cuda/test_module" no_such_test >"$tmp/log"
    rc=$?
    verdict gpu_part_without_a_test_fails "$(fails; has '^FAIL no_such_test: no test')"
fi

# The sanitizer's finding is a failure; that it cannot use the device is none.
stand_ins 'echo "ok   all"'
sanitizer() {
    printf '#!/bin/sh\necho "%s"\nexit %s\n' "$1" "$2" >"$tmp/b/compute-sanitizer" &&
        chmod +x "$tmp/b/compute-sanitizer"
    PATH=$tmp/b:$PATH sh test/cuda/tools.sh memcheck true >"$tmp/log"
}
verdict gpu_sanitizer_that_cannot_use_the_device_is_skipped \
    "$(sanitizer '========= Error: Device not supported. Please refer to the documentation.' 9
       has '^SKIP memcheck')"
verdict gpu_sanitizer_that_finds_something_fails \
    "$(sanitizer '========= Invalid __global__ read of size 4 bytes' 9; has '^FAIL memcheck')"
echo "commit     of-another-one" >"$tmp/b/about.txt"
verdict gpu_bundle_of_another_commit_is_told \
    "$(run correctness; has '^WARN  *the bundle is of of-another-one, the checkout')"

# A checkpoint of holes takes no room, and its weights are made on the device; speculative decoding
# gives plain decoding's tokens with it.
if [ ! -x "$B/cudasim/bench_gpu" ] || [ ! -x "$B/test/bench/make_checkpoint" ]; then
    echo "SKIP gpu_bench: not built (make check-cudasim; a sanitized build has none)"
else
    mkdir "$tmp/model" && "$B/test/bench/make_checkpoint" "$tmp/model" --hidden 64 --inter 64 \
        --layers 1 --heads 1 --kv-heads 1 --head-dim 64 --vocab 9000 --context 64 --sparse
    blocks=$(du -k "$tmp/model/model.safetensors" | cut -f1)
    bytes=$(wc -c <"$tmp/model/model.safetensors")
    "$B/cudasim/bench_gpu" "$tmp/model" --draft "$tmp/model" --prompt 4 --new 8 --k 2 --batches 2 \
        --accept 0.6 --fill 1 --temperature 0.8 >"$tmp/log" 2>&1
    rc=$?
    verdict gpu_bench_of_a_checkpoint_of_holes \
        "$([ $rc -eq 0 ] || echo "exit status $rc"; has '^B=2 .*equal 100.0 %'
           [ $((blocks * 4096)) -lt "$bytes" ] || echo "$blocks KiB for $bytes bytes")"
    # Of K = 2 proposals a round cannot win more than three tokens.
    for least in 2.5 3.1; do
        "$B/cudasim/bench_gpu" "$tmp/model" --draft "$tmp/model" --prompt 4 --new 24 --k 2 \
            --batches 2 --accept none --fill 1 --least $least >"$tmp/log.$least" 2>&1
        echo $? >>"$tmp/log.$least"
    done
    verdict gpu_bench_judges_a_draft \
        "$(cat "$tmp/log.2.5" >"$tmp/log"; has '^ok   B=2 *drafted'; has '^0$'
           cat "$tmp/log.3.1" >"$tmp/log"; has '^FAIL B=2 *drafted'; has '^1$')"
fi

if [ ! -e "$B/libspecbatch_cuda.so" ]; then
    echo "SKIP gpu_run_without_a_device: no CUDA module (no nvcc, CUDA=0 or a sanitizer)"
elif [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
    echo "SKIP gpu_run_without_a_device: there is a device"
else
    OUT=$tmp/results B=$B sh test/cuda/run_on_gpu.sh >"$tmp/log" 2>&1
    rc=$?
    verdict gpu_run_without_a_device_fails \
        "$(fails; has 'the driver is not'; has '^\[device\] FAIL test_the_module')"
fi
