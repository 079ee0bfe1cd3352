#!/bin/sh
# The library on another processor: built for 64-bit ARM, which has the scalar level only, and run
# by an emulator, it gives the bits that it gives here, at the scalar level and at the best one. On
# Debian, after `dpkg --add-architecture arm64`, this installs what it needs:
#     apt-get install gcc-aarch64-linux-gnu qemu-user-static libyajl-dev:arm64
. "$(dirname "$0")/../lib.sh"
slow aarch64
cross=aarch64-linux-gnu-
arm=build/aarch64
models=test/data/models

for tool in ${cross}gcc ${cross}ar ${cross}objcopy qemu-aarch64-static; do
    command -v $tool >/dev/null 2>&1 || { echo "SKIP aarch64: no $tool here"; exit; }
done
echo 'int main(void) { return 0; }' >"$tmp/probe.c"
if ! ${cross}gcc -static "$tmp/probe.c" -l:libyajl_s.a -o "$tmp/probe" 2>/dev/null; then
    echo "SKIP aarch64: no libyajl_s.a for it here (libyajl-dev:arm64)"
    exit
fi

program=test/package/print_bits
run_make -j"$(getconf _NPROCESSORS_ONLN)" SAN= CUDA=0 STATIC=1 B=$arm CC=${cross}gcc \
    AR=${cross}ar OBJCOPY=${cross}objcopy LDFLAGS=-static $arm/$program $arm/libspecbatch.a \
    >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
verdict aarch64_builds
[ $failed = 0 ] || exit

# compare CHECKPOINT DRAFT [q8|q4]: prints nothing where all three agree.
compare() {
    target=$models/$1 draft=$models/$2
    shift 2
    "$B/$program" "$target" "$draft" scalar "$@" >"$tmp/here" 2>>"$tmp/out" ||
        echo "failed here" >>"$tmp/out"
    "$B/$program" "$target" "$draft" auto "$@" >"$tmp/best" 2>>"$tmp/out" ||
        echo "failed here" >>"$tmp/out"
    qemu-aarch64-static "$arm/$program" "$target" "$draft" auto "$@" >"$tmp/there" \
        2>>"$tmp/out" || echo "failed there" >>"$tmp/out"
    cmp "$tmp/here" "$tmp/best" >>"$tmp/out" 2>&1
    cmp "$tmp/here" "$tmp/there" >>"$tmp/out" 2>&1
}
# Weights in f32, in f16 and in bf16; with rotary embeddings of three kinds.
compare llama_untied_f32_sharded llama_untied_f32_sharded.draft
verdict aarch64_gives_the_bits_of_this_machine_f32
compare llama_mha_f16 llama_mha_f16
verdict aarch64_gives_the_bits_of_this_machine_f16
compare glm4_unbiased_bf16 glm4_unbiased_bf16
verdict aarch64_gives_the_bits_of_this_machine_bf16
compare qwen3_yarn_f32 qwen3_yarn_f32
verdict aarch64_gives_the_bits_of_this_machine_yarn
compare llama3_scaled_biased_tied_bf16 glm4_unbiased_bf16 q4
verdict aarch64_gives_the_bits_of_this_machine_q4
compare llama_untied_f32_sharded llama_untied_f32_sharded.draft q8
verdict aarch64_gives_the_bits_of_this_machine_q8
