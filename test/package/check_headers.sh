#!/bin/sh
# The public header, by itself and twice, compiles as C99, C11 and C++11 under strict warnings by
# every compiler that is here.
. "$(dirname "$0")/../lib.sh"

cat >"$tmp/use.c" <<'END'
#include "specbatch.h"
#include "specbatch.h"
static const specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
static const specbatch_pool_options pool = SPECBATCH_POOL_OPTIONS_INIT;
static const specbatch_request request = SPECBATCH_REQUEST_INIT;
static const specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
int main(void)
{
    return model.struct_size + pool.struct_size + request.struct_size + report.struct_size == 0;
}
END
cp "$tmp/use.c" "$tmp/use.cc"

# compile NAME COMPILER STANDARD FILE
compile() {
    if ! command -v "$2" >/dev/null 2>&1; then
        echo "SKIP header_$1: no $2 here"
        return
    fi
    "$2" -std="$3" -Wall -Wextra -Wpedantic -Wundef -Werror -Iinclude -c "$tmp/$4" \
        -o "$tmp/use.o" >"$tmp/log" 2>&1 || { echo "$2 -std=$3:"; cat "$tmp/log"; } >"$tmp/out"
    verdict "header_$1"
}
compile c99_gcc gcc c99 use.c
compile c11_gcc gcc c11 use.c
compile cxx11_gcc g++ c++11 use.cc
compile c99_clang clang c99 use.c
compile c11_clang clang c11 use.c
compile cxx11_clang clang++ c++11 use.cc

grep '^ *# *include' include/specbatch.h | grep -Ev '<(stddef|stdint)\.h>' >"$tmp/out"
verdict header_includes_only_stddef_and_stdint

# The sizes of structs that the header gives to other languages are those that a compiler has
# checked.
grep -oE '\bspecbatch_[a-z_]+ +[0-9]+\b' include/specbatch.h | tr -s ' ' | sort >"$tmp/said"
sed -n 's/^SIZE(\(.*\), \(.*\));/\1 \2/p' test/api/test_abi.c | sort |
    diff - "$tmp/said" >"$tmp/out"
verdict header_says_the_sizes_of_its_structs
