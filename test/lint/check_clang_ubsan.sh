#!/bin/sh
# The library and a few quick tests, compiled by clang with its undefined behaviour sanitizer, which
# sees what gcc's does not: above all arithmetic on a null pointer. They are built in a folder of
# their own and at -O1. The kernels are the build's, since clang takes minutes for each with the
# sanitizer; `make release-check` has them with it.
. "$(dirname "$0")/../lib.sh"
built=$B
B=build/clang-undefined${RELEASE:+-kernels} # a folder has kernels of one kind

if [ -n "$SAN" ]; then
    echo "SKIP clang_ubsan: runs with the plain build"
    exit
fi
mkdir -p "$B"
if ! echo 'int main(void) { return 0; }' |
    clang -fsanitize=undefined -x c - -o "$B/probe" 2>/dev/null; then
    echo "SKIP clang_ubsan: no clang with a sanitizer runtime here"
    exit
fi
tests="ground/test_json ground/test_options ground/test_status text/test_chat
       text/test_tokenizer_files model/test_config model/test_safetensors model/test_torch_file
       cpu/test_threads api/test_stream api/test_lifetimes"
kernels=
[ -n "$RELEASE" ] || kernels=$(take_kernels "$built" $B)
if ! run_make $kernels CC=clang SAN=undefined CUDA=0 B=$B CFLAGS=-O1 \
    $(for test in $tests; do echo "$B/test/$test"; done) >"$B/build.log" 2>&1; then
    tail -n 20 "$B/build.log" >"$tmp/out"
    verdict clang_ubsan_builds
    exit
fi
for test in $tests; do
    name=${test#*/test_}
    if ! "$B/test/$test" >"$B/$name.log" 2>&1; then
        echo "$B/$name.log:" >"$tmp/out"
        grep -E 'runtime error|^ |FAIL' "$B/$name.log" | head -n 20 >>"$tmp/out"
    fi
    verdict "clang_ubsan_$name"
done
