#!/bin/sh
# The CUDA module as nvcc and the linker have made it: it exports one symbol, needs nothing but the
# C library, calls nothing that a library must not call, and ptxas has reported its registers. This
# is skipped where the build has no module.
. "$(dirname "$0")/../lib.sh"
module=$B/libspecbatch_cuda.so
if [ ! -e "$module" ]; then
    echo "SKIP cuda_build: no module in this build (no nvcc, CUDA=0 or a sanitizer)"
    exit
fi
nm -D --defined-only "$module" | awk '{ print $3 }' | grep -vx specbatch_backend_get >"$tmp/out"
verdict cuda_build_one_export
readelf -d "$module" | grep NEEDED |
    grep -vE 'lib(c|m|dl|rt|pthread)\.so|ld-linux' >"$tmp/out"
verdict cuda_build_needs_the_c_library_alone
find "$B/cuda/src" -name '*.o' -exec nm -u {} + |
    grep -wE '(v?f?printf|puts|perror|abort|exit|getenv|malloc|free)$' >"$tmp/out"
verdict cuda_build_imports_nothing_a_library_must_not_call

report=$B/cuda/registers.txt
kernels=$(grep -c 'Compiling entry function' "$report")
most=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$report" | sort -n | tail -1)
echo "     $kernels kernels over all architectures, at most $most registers"
[ "$kernels" -gt 0 ] || echo "$report has no kernels" >"$tmp/out"
verdict cuda_build_register_report
# A value that is spilled is stored to memory and loaded again: the kernel has too few registers.
awk '/Compiling entry function/ { kernel = $0 }
    / bytes spill / && $5 + $9 > 0 { print kernel; print }' "$report" >"$tmp/out"
verdict cuda_build_no_kernel_spills
