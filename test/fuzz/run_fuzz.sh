#!/bin/sh
# run_fuzz.sh MINUTES: builds the fuzz targets (TARGETS, or all) in build/fuzz by clang with its
# libFuzzer, the address and the undefined behaviour sanitizer, and runs one after the other for so
# many minutes. `make fuzz` calls it.
#
# A target begins with the inputs of test/fuzz/corpus/NAME and those that earlier runs left in
# build/fuzz/corpus/NAME, where new ones go. What breaks it is kept in build/fuzz/findings, and
# printed with the command that repeats it. A hang is a finding, and so is too much memory: the
# library promises bounded work on whatever a file says.
. "$(dirname "$0")/../lib.sh"
minutes=$1
B=build/fuzz
case $minutes in
'' | *[!0-9]* | 0)
    echo "fuzz: MINUTES is \"$minutes\", not a number of minutes"
    exit 1
    ;;
esac
TARGETS=${TARGETS:-$(ls test/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')}

if ! command -v clang >/dev/null 2>&1; then
    echo "fuzz: clang is missing (Debian: apt-get install clang libclang-rt-14-dev)"
    exit 1
fi
cat >"$tmp/probe.c" <<'C'
int LLVMFuzzerTestOneInput(const char *data, long n);
int LLVMFuzzerTestOneInput(const char *data, long n) { return data && n < 0; }
C
if ! clang -fsanitize=fuzzer,address,undefined "$tmp/probe.c" -o "$tmp/probe" 2>"$tmp/log"; then
    echo "fuzz: clang is here, and its sanitizers or libFuzzer are missing (Debian: apt-get" \
        "install libclang-rt-$(clang -dumpversion | sed 's/\..*//')-dev)"
    exit 1
fi
mkdir -p $B/findings
run_make -j"$(getconf _NPROCESSORS_ONLN)" B=$B CC=clang SAN=address,undefined CUDA=0 FUZZER=1 \
    CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' \
    $(for target in $TARGETS; do echo $B/test/fuzz/$target; done) || exit 1

# The longest input, and the seconds that one may take. An expression may take its 2^26 steps many
# times over in one input, as a file is tried with several texts and flags.
limits() {
    case $1 in
    api) echo "-max_len=256 -timeout=20" ;;
    session | options) echo "-max_len=512 -timeout=20" ;;
    pattern) echo "-max_len=2048 -timeout=20" ;;
    config) echo "-max_len=4096 -timeout=5" ;;
    gguf | pickle | safetensors) echo "-max_len=4096 -timeout=5" ;;
    *) echo "-max_len=8192 -timeout=60" ;;
    esac
}

found=0
for target in $TARGETS; do
    words=test/fuzz/dictionaries/$target.txt
    log=$B/$target.log
    mkdir -p $B/corpus/$target
    set -- $(limits $target) -rss_limit_mb=1024 -malloc_limit_mb=256
    [ ! -e $words ] || set -- "$@" -dict=$words
    echo "fuzz: $target for $minutes minutes"
    TMPDIR=$tmp ASAN_OPTIONS=quarantine_size_mb=32 $B/test/fuzz/$target "$@" \
        -max_total_time=$((minutes * 60)) -print_final_stats=1 \
        -artifact_prefix=$B/findings/$target- $B/corpus/$target test/fuzz/corpus/$target \
        >$log 2>&1
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' $log)
    edges=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' $log | tail -n 1)
    kept=$(ls $B/corpus/$target | wc -l)
    echo "fuzz: $target: ${runs:-0} executions, ${edges:-0} edges," \
        "$kept inputs in $B/corpus/$target"
    if [ $rc -ne 0 ]; then
        found=1
        grep -E 'finding:|runtime error|ERROR:|SUMMARY' $log | head -n 5 >"$tmp/findings"
        indented "$tmp/findings"
        echo "fuzz: $target: FINDING (all of it: $log); repeat it with"
        sed -n "s|.*Test unit written to \(.*\)|     $B/test/fuzz/$target $* \1|p" $log
    fi
done
exit $found
