#!/bin/sh
# The ABI is that of the baseline in test/data/abi: whatever programs could use is still there, and
# nothing was added without `make abi-baseline`. Each kind of break is made on purpose, in a copy of
# header and map, to see that it is found. Programs with the header of each earlier version run, and
# one with the header of a later version.
. "$(dirname "$0")/../lib.sh"
. test/api/abi_lib.sh

if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "SKIP abi_gate: no $PYTHON here"
    exit
fi

# Until a version has come behind it, the kept header of the present version follows the header.
headers bare include/specbatch.h | diff "$(present).h" - >"$tmp/out" 2>&1
diff "$(present).map" src/specbatch.map >>"$tmp/out" 2>&1
[ ! -s "$tmp/out" ] || echo "(what is only added is accepted by: make abi-baseline)" >>"$tmp/out"
verdict abi_gate_has_the_header_and_the_map_of_this_version

# The handles are what abidiff may not look into.
cat >"$tmp/handles" <<'END'
[suppress_type]
  name_regexp = ^specbatch_(model|draft|pool|result|text_stream)$
END
# symbols LIBRARY: its names with their version nodes.
symbols() { nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | LC_ALL=C sort; }
# made NAME HEADER MAP: the folder $tmp/NAME with these two and their library.
made() {
    mkdir "$tmp/$1" && cp "$2" "$tmp/$1/specbatch.h" && cp "$3" "$tmp/$1/map" &&
        standin "$tmp/$1" >"$tmp/log" 2>&1 || cat "$tmp/log" >>"$tmp/out"
}
newest=$(ls $abi/specbatch-*.h | sort -V | tail -n 1)
made base "$newest" "${newest%.h}.map"
symbols "$tmp/base/libspecbatch.so" >"$tmp/symbols"

# gate HEADER LIBRARY: what is not as in the baseline, a line for each thing that begins with
# `break: ` or `grown: `, or with what abidiff says. Of earlier versions than the newest that is
# kept, all have grown.
gate() {
    headers compare "$newest" "$1"
    for old in $abi/specbatch-*.h; do
        [ "$(defined "$old" SOVERSION)" = "$(defined "$1" SOVERSION)" ] || continue
        [ "$old" = "$newest" ] || headers compare "$old" "$1" | grep '^break: '
    done
    symbols "$2" | LC_ALL=C comm -23 "$tmp/symbols" - | sed 's/^/break: there is no symbol /'
    if command -v abidiff >/dev/null 2>&1; then
        abidiff --no-show-locs --suppressions "$tmp/handles" "$tmp/base/libspecbatch.so" "$2" \
            >"$tmp/abidiff" || sed 's/^/abidiff: /' "$tmp/abidiff"
    fi
}
command -v abidiff >/dev/null 2>&1 ||
    echo "SKIP abi_gate_abidiff: no abidiff here (Debian's package is abigail-tools)"

# Without debug information all libraries are the same to abidiff, so the header is compared by a
# library made of it, whatever the flags of this build are.
made now include/specbatch.h src/specbatch.map
gate include/specbatch.h "$tmp/now/libspecbatch.so" >>"$tmp/out"
verdict abi_gate_header_and_map_are_the_baseline
if [ -n "$SAN" ]; then
    echo "SKIP abi_gate: a sanitizer adds symbols of its own"
    exit
elif readelf -S "$B/libspecbatch.so" | grep -q '\.debug_info'; then
    gate include/specbatch.h "$B/libspecbatch.so" >"$tmp/out"
    verdict abi_gate_this_build_is_the_baseline
else
    echo "SKIP abi_gate_this_build_is_the_baseline: it has no debug information"
fi

# changed NAME KIND FILE SED: a copy in which this command has changed FILE (specbatch.h or map) is
# reported as KIND (break or grown), and what has grown as nothing worse. abidiff must find it too,
# or with `unseen` it cannot, as it does not know of constants.
changed() {
    copy=$tmp/$1
    mkdir "$copy" && cp "$tmp/now/specbatch.h" "$tmp/now/map" "$copy"
    sed -i "$4" "$copy/$3"
    cmp -s "$tmp/now/$3" "$copy/$3" && echo "nothing was changed" >>"$tmp/out"
    standin "$copy" >"$tmp/log" 2>&1 || cat "$tmp/log" >>"$tmp/out"
    gate "$copy/specbatch.h" "$copy/libspecbatch.so" >"$tmp/gate"
    grep -q "^$2: " "$tmp/gate" || { echo "it is not reported: $2"; cat "$tmp/gate"; } >>"$tmp/out"
    [ "$2" = break ] || grep '^break: ' "$tmp/gate" >>"$tmp/out"
    if command -v abidiff >/dev/null 2>&1 && [ -z "$unseen" ]; then
        grep -q '^abidiff: ' "$tmp/gate" || echo "abidiff does not see it" >>"$tmp/out"
    fi
    verdict "abi_gate_finds_$1"
}
# in_struct NAME SED: the sed command for these lines only.
in_struct() { printf '%s\n' "/^typedef struct specbatch_$1 {/,/^}/$2"; }
h=specbatch.h
more='s/sizeof(specbatch_ngram_options), 0, 0/&, 0/'
cancel='specbatch_pool_cancel(specbatch_pool \*pool, '
changed a_field_inserted break $h \
    "$(in_struct ngram_options 's/ int32_t max_match;/ uint64_t more;\n&/'); $more"
changed a_field_of_another_type break $h \
    "$(in_struct ngram_options 's/ int32_t min_match;/ uint32_t min_match;/')"
changed a_struct_that_has_shrunk break $h \
    "$(in_struct request 's/^    uint64_t deadline_ns;//'); s/\(NULL, 0, 0, 0, 0\), 0  /\1/"
changed an_argument_of_another_type break $h "s/\(${cancel}\)uint64_t id/\1int64_t id/"
changed an_argument_more break $h "s/${cancel}uint64_t id/&, int32_t how/"
changed a_function_that_returns_another_type break $h \
    's/uint64_t specbatch_model_bytes/uint32_t specbatch_model_bytes/'
changed a_callback_of_another_type break $h \
    's/specbatch_progress_fn)(void \*user, uint64_t/specbatch_progress_fn)(void *user, uint32_t/'
changed a_symbol_dropped break map '/^ *specbatch_pool_unpin;/d'
now=$(sed -n 's/^\(SPECBATCH_[0-9.]*\) {.*/\1/p' src/specbatch.map | tail -n 1)
changed a_symbol_in_another_node break map \
    "/^ *specbatch_pool_unpin;/d; \$a SPECBATCH_99 { global: specbatch_pool_unpin; } $now;"
changed a_struct_that_has_grown grown $h \
    "$(in_struct ngram_options 's/^}/    uint64_t more;\n&/'); $more"
unseen=1
kv='SPECBATCH_KV_F16 = 3'
changed a_constant_renumbered break $h "s/$kv/SPECBATCH_KV_F16 = 4/"
changed a_constant_dropped break $h "/$kv/d"
changed a_new_constant grown $h "s/$kv/&, SPECBATCH_KV_F8 = 4/"

# runs HEADER TEXT...: test/api/caller.c with this header runs with today's library.
line=$(head -n 1 test/data/models/emoji/known.tsv)
tab=$(printf '\t')
runs() {
    mkdir -p "$tmp/caller"
    cp "$1" "$tmp/caller/specbatch.h"
    $CC -std=c99 -Wall -Wextra -Werror -I"$tmp/caller" test/api/caller.c -L"$B" -lspecbatch \
        -Wl,-rpath,"$root/$B" -o "$tmp/caller/run" >"$tmp/out" 2>&1 &&
        { "$tmp/caller/run" test/data/models/emoji "${line%%"$tab"*}" "${line#*"$tab"}" \
            >"$tmp/out" 2>&1 || echo "it ends with status $?" >>"$tmp/out"; }
}
for old in $abi/specbatch-*.h; do
    [ "$(defined "$old" SOVERSION)" = "$(defined include/specbatch.h SOVERSION)" ] || continue
    runs "$old"
    verdict "abi_a_program_of_$(version_of "$old")_runs"
done
headers newer include/specbatch.h >"$tmp/newer.h"
runs "$tmp/newer.h"
verdict abi_a_program_of_a_later_version_gets_what_there_is_and_no_more

# A program of soname 0 finds no library; and not a word of it runs if today's is given its name.
mkdir "$tmp/zero" "$tmp/renamed"
sed 's/ SPECBATCH_SOVERSION 1/ SPECBATCH_SOVERSION 0/' include/specbatch.h >"$tmp/zero/specbatch.h"
sed 's/^SPECBATCH_[0-9.]* {/SPECBATCH_0 {/' src/specbatch.map >"$tmp/zero/map"
cp "$B/libspecbatch.so" "$tmp/renamed/libspecbatch.so.0"
standin "$tmp/zero" >"$tmp/out" 2>&1
cat >"$tmp/zero/main.c" <<'END'
#include "specbatch.h"
int main(void) { return specbatch_version() < 0; }
END
$CC -I"$tmp/zero" "$tmp/zero/main.c" -L"$tmp/zero" -lspecbatch -o "$tmp/zero/main" >>"$tmp/out" 2>&1
for folder in "$B" "$tmp/renamed"; do
    LD_LIBRARY_PATH=$folder "$tmp/zero/main" >"$tmp/log" 2>&1 && echo "it runs" >>"$tmp/out"
    grep -q "libspecbatch.so.0: cannot open\|version .SPECBATCH_0' not found" "$tmp/log" ||
        cat "$tmp/log" >>"$tmp/out"
done
verdict abi_a_program_of_soname_0_is_refused_at_load
