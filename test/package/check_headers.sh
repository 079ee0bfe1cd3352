#!/bin/sh
# The public headers, by themselves and twice, compile in every standard that they are for, under
# strict warnings and by every compiler that is here.
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
cat >"$tmp/use.hpp.cc" <<'END'
#include "specbatch.hpp"
#include "specbatch.hpp"
int main()
{
    return specbatch::Request("", 1).max_new - 1;
}
END

# compile NAME COMPILER STANDARD FILE
compile() {
    if ! command -v "$2" >/dev/null 2>&1; then
        echo "SKIP header_$1: no $2 here"
        return
    fi
    "$2" -std="$3" -Wall -Wextra -Wpedantic -Wundef -Wconversion -Wshadow -Werror -Iinclude \
        -c "$tmp/$4" -o "$tmp/use.o" >"$tmp/log" 2>&1 ||
        { echo "$2 -std=$3:"; cat "$tmp/log"; } >"$tmp/out"
    verdict "header_$1"
}
for standard in c99 c11 c17; do
    compile ${standard}_gcc gcc $standard use.c
    compile ${standard}_clang clang $standard use.c
done
for standard in 11 17 20; do
    compile cxx${standard}_gcc g++ c++$standard use.cc
    compile cxx${standard}_clang clang++ c++$standard use.cc
done
for standard in 17 20; do
    compile hpp_cxx${standard}_gcc g++ c++$standard use.hpp.cc
    compile hpp_cxx${standard}_clang clang++ c++$standard use.hpp.cc
done

grep '^ *# *include' include/specbatch.h | grep -Ev '<(stddef|stdint)\.h>' >"$tmp/out"
verdict header_includes_only_stddef_and_stdint

# The sizes of structs that the header gives to other languages are those that a compiler has
# checked.
grep -oE '\bspecbatch_[a-z_]+ +[0-9]+\b' include/specbatch.h | tr -s ' ' | sort >"$tmp/said"
sed -n 's/^SIZE(\(.*\), \(.*\));/\1 \2/p' test/api/test_abi.c | sort |
    diff - "$tmp/said" >"$tmp/out"
verdict header_says_the_sizes_of_its_structs
