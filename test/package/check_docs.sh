#!/bin/sh
# What the pages quote is in the source: the lines of docs/errors.md are messages of the library or
# of the programs.
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
