#!/bin/sh
# The symbols that the library exports are those of the header, of src/specbatch.map, of the shared
# library and of the archive alike; and the library calls nothing that an embedded library must not.
. "$(dirname "$0")/../lib.sh"

# The functions of the header and of the map in their own order, those of the libraries sorted.
$CC -E -P -Iinclude include/specbatch.h | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/^.*visibility[^)]*))).*[ *]\(specbatch_[a-z0-9_]*\) *(.*$/\1/p' >"$tmp/header"
sed -n 's/^ *\(specbatch_[a-z0-9_]*\);$/\1/p' src/specbatch.map >"$tmp/map"
sort "$tmp/map" >"$tmp/sorted_map"
nm -D --defined-only "$B/libspecbatch.so" |
    awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$tmp/shared"
nm -g --defined-only "$B/libspecbatch.a" | awk 'NF == 3 { print $3 }' | sort >"$tmp/archive"

[ "$(wc -l <"$tmp/header")" -gt 50 ] || echo "the header's prototypes were not found" >"$tmp/out"
diff "$tmp/header" "$tmp/map" >>"$tmp/out"
verdict abi_map_is_the_header_in_its_order
diff "$tmp/sorted_map" "$tmp/shared" >"$tmp/out"
verdict abi_shared_library_exports_the_map

# The node of a minor version: SPECBATCH_0.2.
nm -D --defined-only "$B/libspecbatch.so" | grep ' T ' |
    grep -v '@@SPECBATCH_0\.[0-9]*$' >"$tmp/out"
verdict abi_every_symbol_has_the_version_node

soname=$(readelf -d "$B/libspecbatch.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
want=libspecbatch.so.$(sed -n 's/^.define SPECBATCH_SOVERSION  *//p' include/specbatch.h)
[ "$soname" = "$want" ] || echo "the soname is $soname instead of $want" >"$tmp/out"
verdict abi_soname

if [ -n "$SAN" ]; then
    echo "SKIP abi_newer_program: a sanitized library runs in sanitized programs only"
    echo "SKIP abi_archive: a sanitizer adds symbols of its own"
    echo "SKIP abi_imports: a sanitizer adds symbols of its own"
    exit
fi
# A program that uses a function of the next minor version is refused when it is loaded, before it
# has run. That version is a library of two functions here; the program calls the new one only if it
# is asked to.
now=$(sed -n 's/^SPECBATCH_\([0-9.]*\) {.*/\1/p' src/specbatch.map | tail -n 1)
next=${now%.*}.$((${now#*.} + 1))
mkdir "$tmp/next"
echo "SPECBATCH_$now { global: specbatch_version; local: *; };
SPECBATCH_$next { global: specbatch_of_the_next; } SPECBATCH_$now;" >"$tmp/next/map"
echo 'int specbatch_version(void) { return 1; } int specbatch_of_the_next(void) { return 0; }' |
    $CC -shared -fPIC -x c - -Wl,-soname,"$soname" -Wl,--version-script="$tmp/next/map" \
        -o "$tmp/next/$soname" 2>"$tmp/out"
program='int specbatch_version(void); int specbatch_of_the_next(void);
int main(int argc, char **argv) { (void)argv; return argc > 1 ? CALL : !specbatch_version(); }'
for call in specbatch_version specbatch_of_the_next; do
    echo "$program" | $CC -DCALL="$call()" -x c - -x none "$tmp/next/$soname" \
        -o "$tmp/next/$call" 2>>"$tmp/out"
    LD_LIBRARY_PATH="$tmp/next" "$tmp/next/$call" 2>>"$tmp/out" || echo "$call: $?" >>"$tmp/out"
done
LD_LIBRARY_PATH="$B" "$tmp/next/specbatch_version" 2>>"$tmp/out" || echo "failed" >>"$tmp/out"
LD_LIBRARY_PATH="$B" "$tmp/next/specbatch_of_the_next" 2>"$tmp/log"
grep -q "version .SPECBATCH_$next' not found" "$tmp/log" ||
    { echo "it was not refused"; cat "$tmp/log"; } >>"$tmp/out"
verdict abi_a_program_of_a_newer_version_is_refused_at_load

diff "$tmp/sorted_map" "$tmp/archive" >"$tmp/out"
verdict abi_archive_exports_the_map

$CC -std=c11 -Iinclude test/api/clash.c "$B/libspecbatch.a" -lyajl -lm -ldl -pthread \
    -o "$tmp/clash" >"$tmp/out" 2>&1 && { "$tmp/clash" || echo "clash failed" >"$tmp/out"; }
verdict abi_archive_lives_beside_a_host_of_the_same_names

# A host in C++ that has all names of the library's internals, as functions of its own.
if command -v "$CXX" >/dev/null 2>&1; then
    {
        echo '#include "specbatch.hpp"'
        find "$B/src" "$B/kernels" -name '*.o' -exec nm -g --defined-only {} + |
            awk 'NF == 3 && $3 !~ /^specbatch_/ { print $3 }' | sort -u |
            sed 's/.*/extern "C" int &(void) { return 7; }/'
        cat <<'END'
int main()
try {
    specbatch::Model("no/such/directory");
    return 1;
} catch (const specbatch::error &failure) {
    return failure.status() != SPECBATCH_E_IO || sb_fail() != 7;
}
END
    } >"$tmp/host.cc"
    [ "$(grep -c '^extern' "$tmp/host.cc")" -gt 200 ] || echo "no internals were found" >"$tmp/out"
    $CXX -std=c++17 -Iinclude "$tmp/host.cc" "$B/libspecbatch.a" -lyajl -lm -ldl -pthread \
        -o "$tmp/host" >>"$tmp/out" 2>&1 && { "$tmp/host" || echo "it failed" >>"$tmp/out"; }
    verdict abi_archive_lives_beside_a_host_in_cxx_of_all_its_names
else
    echo "SKIP abi_archive_lives_beside_a_host_in_cxx_of_all_its_names: no $CXX here"
fi

# An embedded library does not print, end the process, read the environment, install handlers or
# map files.
printing='v?f?printf|_*v?f?printf_chk|f?puts|put(char|c)|fwrite|perror|stdout|stderr'
ending='abort|_*exit|_*assert_fail|atexit'
environment='(secure_)?getenv|setenv|setlocale'
process='signal|sigaction|mmap(64)?|system|popen|fork|strtok|s?rand'
nm -D --undefined-only "$B/libspecbatch.so" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
    grep -Ex "$printing|$ending|$environment|$process" >"$tmp/out"
verdict abi_imports_nothing_a_library_must_not_call
