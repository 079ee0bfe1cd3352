#!/bin/sh
# The C++ header: test/api/test_cplusplus.cc is compiled in C++17 and in C++20 and linked with the
# shared library. Every function of the library can be reached through the header. The program of
# docs/cplusplus.md runs, and its other block compiles within a function.
. "$(dirname "$0")/../lib.sh"

# Options are initialised by their structs' constructors; specbatch.h itself has the names of
# statuses.
sed -n 's/^ *\(specbatch_[a-z0-9_]*\);$/\1/p' src/specbatch.map | grep -v '_init$' |
    while read -r name; do
        grep -qw "$name" include/specbatch.hpp || echo "$name is not in specbatch.hpp"
    done >"$tmp/out"
sed -n 's/^typedef struct \(specbatch_[a-z_]*\).*/\1/p' include/specbatch.h |
    while read -r name; do
        grep -qw "$name" include/specbatch.hpp || echo "$name is not in specbatch.hpp"
    done >>"$tmp/out"
verdict cplusplus_header_has_every_function_and_struct

# A model that the log is told of: its configuration has no end-of-sequence id.
without_eos=$tmp/without_eos
cp -R test/data/models/qwen3_untied_f32_sharded "$without_eos"
chmod -R u+w "$without_eos"
rm -f "$without_eos/generation_config.json"
sed -i '/eos_token_id/d' "$without_eos/config.json"

# compiled STANDARD COMPILER: the tests compiled so are $tmp/test_STANDARD.
compiled() {
    if ! echo 'int main() { return 0; }' | $2 -std=$1 -x c++ - -o "$tmp/p" 2>/dev/null; then
        echo "SKIP cplusplus_$1: no C++ compiler here that has it"
        return 1
    fi
    $2 -std=$1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror ${SAN:+-fsanitize=$SAN} \
        -pthread -Iinclude test/api/test_cplusplus.cc -L"$B" -lspecbatch -Wl,-rpath,"$root/$B" \
        -o "$tmp/test_$1" >"$tmp/out" 2>&1
    verdict "cplusplus_compiles_in_$1"
    [ -x "$tmp/test_$1" ]
}
compiled c++20 "$CXX"
if compiled c++17 "$CXX"; then
    SESSION_FILE="$tmp/session" WITHOUT_EOS="$without_eos" "$tmp/test_c++17"
fi

# Block N of the page is $tmp/block_N.
awk '/^ *```cpp$/ { file = dir "/block_" ++n; next } /^ *```$/ { file = "" } file { print >file }' \
    dir="$tmp" docs/cplusplus.md
{
    cat "$tmp/block_1"
    echo "void page(specbatch::View<std::int32_t> digit_ids)"
    echo "{"
    cat "$tmp/block_2"
    echo "}"
} >"$tmp/page.cc"
$CXX -std=c++17 -Wall -Wextra -Werror ${SAN:+-fsanitize=$SAN} -pthread -Iinclude "$tmp/page.cc" \
    -L"$B" -lspecbatch -Wl,-rpath,"$root/$B" -o "$tmp/page" >"$tmp/out" 2>&1 &&
    "$tmp/page" examples/demo/target "It was" "There is" >"$tmp/log" 2>&1 ||
    indented "$tmp/log" >>"$tmp/out"
[ "$(grep -c ' tokens$' "$tmp/log")" = 2 ] || echo "there are not two results" >>"$tmp/out"
verdict cplusplus_page_compiles_and_runs
