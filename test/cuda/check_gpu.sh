#!/bin/sh
# Every check that needs a GPU, in one run: `make check-gpu`. Writes build/gpu/results.txt. Without a GPU it fails, and
# says so: a check that did not run has not passed.
root=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-build/cpu}
cd "$root" || exit 1
out=build/gpu/results.txt
mkdir -p build/gpu
say() { echo "$@" | tee -a "$out"; }
. test/cuda/gpu.sh
gpu_missing check-gpu | tee "$out"
[ -s "$out" ] && exit 1
say "date      $(date -u +%Y-%m-%dT%H:%MZ)   commit $(git rev-parse --short HEAD 2>/dev/null)"
say "gpu       $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)"

# part SECONDS NAME COMMAND...
part() {
    limit=$1
    name=$2
    shift 2
    say "== $name"
    began=$(date +%s)
    timeout "$limit" "$@" >build/gpu/part.txt 2>&1
    rc=$?
    cat build/gpu/part.txt | tee -a "$out"
    [ $rc -eq 0 ] || grep -q '^FAIL ' build/gpu/part.txt || say "FAIL $name: exit status $rc (124: over $limit s)"
    say "     $(($(date +%s) - began)) s"
}
export B SB_TEST_DEVICE=cuda
part 20 "the module finds the device" "$B/test/test_cuda_backend" the_module
for kernels in kernels attention mma; do
    part 15 "kernels against the CPU's: $kernels" "$B/gpu/test_cuda_$kernels"
done
part 45 "goldens: f32 reference and 16 bit (E4)" "$B/gpu/test_goldens"
part 90 "products (E1 E2 E3)" "$B/gpu/experiments"
part 50 "prefill by cuDNN (E6)" "$B/gpu/experiment_prefill"
part 40 "contract, long prompts, 16-bit class (E5)" "$B/gpu/test_long_prompts"
part 60 "contract, f32 reference class (E5)" "$B/test/test_contract"
part 90 "contract, 16-bit class (E5)" env SB_TEST_COMPUTE=16bit "$B/test/test_contract"
if command -v compute-sanitizer >/dev/null 2>&1; then
    part 45 "compute-sanitizer memcheck" compute-sanitizer --error-exitcode 9 "$B/gpu/test_goldens" 16_bit
    part 45 "compute-sanitizer racecheck" compute-sanitizer --tool racecheck --error-exitcode 9 "$B/gpu/test_goldens" f32
else
    say "SKIP compute-sanitizer: not installed"
fi
say "$(grep -c '^ok   ' "$out") passed, $(grep -c '^FAIL ' "$out") failed, $(grep -c '^SKIP ' "$out") skipped"
! grep -q '^FAIL ' "$out"
