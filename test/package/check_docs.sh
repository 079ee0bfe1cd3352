#!/bin/sh
# What the pages quote is in the source, and what the header has is in the reference: the lines of
# docs/errors.md are messages of the library or of the programs, and docs/reference.py leaves
# nothing out.
. "$(dirname "$0")/../lib.sh"

# The strings of the source, each on a line: those in several pieces put together, quotes bare, and
# what printf fills in as "...".
cat src/*.c src/*/*.c src/*/*/*.c examples/*.c examples/support/*.c |
    awk 'held ~ /("|PRI[a-z0-9]*)$/ && /^ *"/ { sub(/^ */, ""); held = held $0; next }
         { print held; held = $0 }
         END { print held }' |
    sed 's/" *PRI[a-z0-9]* *"/u/g; s/\([^\\]\)""/\1/g; s/\\"/\x01/g' | grep -ao '"[^"]*"' |
    sed 's/^"//; s/"$//; s/\x01/"/g; s/%[-0-9.*]*[hlz]*[a-zA-Z]/.../g' | sort -u >"$tmp/strings"
# A line of the table may leave more to "..." than one of the source.
sed -n 's/^| `\(.*\)` | .* | .* |$/\1/p' docs/errors.md >"$tmp/lines"
while read -r line; do
    pattern=$(printf '%s\n' "$line" | sed 's/[][\\.*^$]/\\&/g; s/\\\.\\\.\\\./.*/g')
    grep -aq -- "^$pattern" "$tmp/strings" || echo "not in the source: $line"
done <"$tmp/lines" >"$tmp/out"
[ "$(wc -l <"$tmp/lines")" -ge 40 ] || echo "docs/errors.md has few lines" >>"$tmp/out"
verdict lines_of_the_page_on_errors_are_in_the_source

for page in docs/*.md; do
    [ "$page" = docs/README.md ] || grep -q "($(basename "$page"))" docs/README.md ||
        echo "docs/README.md does not lead to $page"
done >"$tmp/out"
verdict every_page_is_in_the_index

if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "SKIP reference: no $PYTHON here"
    exit
fi
header=include/specbatch.h
$PYTHON docs/reference.py $header "$tmp/page.html" >"$tmp/out" 2>&1
verdict reference_is_made_without_a_warning
[ -e "$tmp/page.html" ] || exit
# The header without its comments.
sed 's|/\*.*\*/||' $header | awk '/\/\*/ { inside = 1; sub(/\/\*.*/, ""); print }
    !inside
    /\*\// { inside = 0 }' >"$tmp/bare.h"
# These are found by other means than those of the page's own reader of the header.
{
    grep -oE 'specbatch_[a-z0-9_]+' src/specbatch.map
    sed -n 's/^typedef struct \(specbatch_[a-z_]*\) .*/\1/p
            s/^typedef .*(\*\(specbatch_[a-z_]*\)).*/\1/p' $header
    sed -n 's/^#define \(SPECBATCH_[A-Z0-9_]*\) *[0-9\\].*/\1/p' $header | grep -v _INIT
    grep -oE 'SPECBATCH_[A-Z0-9_]+ = ' $header | tr -d ' ='
    awk '/^typedef struct specbatch_[a-z_]* \{/ { name = $3; next }
         /^}/ { name = "" }
         name && match($0, /[a-z_]+;/) { print name "." substr($0, RSTART, RLENGTH - 1) }
         name && match($0, /\(\*[a-z]+\)\(/) {
             print name "." substr($0, RSTART + 2, RLENGTH - 4)
         }' "$tmp/bare.h"
} | sort -u >"$tmp/names"
grep -o 'id="[^"]*"' "$tmp/page.html" | sed 's/id="//; s/"//' | sort >"$tmp/ids"
comm -23 "$tmp/names" "$tmp/ids" | sed 's/$/ is not in the reference/' >"$tmp/out"
uniq -d "$tmp/ids" | sed 's/$/ is there twice/' >>"$tmp/out"
[ "$(wc -l <"$tmp/names")" -ge 300 ] || echo "few names are looked for" >>"$tmp/out"
verdict reference_has_every_function_struct_field_and_constant
