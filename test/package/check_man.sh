#!/bin/sh
# The manual pages: each has the options of its program and no others, names what exists, and is
# well formed where mandoc is there to say so.
. "$(dirname "$0")/../lib.sh"

for name in generate chat bench quantize table; do
    program=$B/examples/$name
    [ $name != table ] || program=$B/examples/ngram_table
    page=docs/man/specbatch-$name.1
    $program --help | grep -oE '^  (-h, )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort >"$tmp/want"
    grep '^\.It' "$page" | grep -oE 'Fl -[a-z-]+' | sed 's/Fl -/--/' | sort | diff "$tmp/want" - \
        >"$tmp/out"
    verdict "man_page_has_the_options_of_$name"
done

# What becomes of turns where the target's chat format is not known, in the help and in the page.
for text in "$("$B/examples/generate" --help)" "$(cat docs/man/specbatch-generate.1)"; do
    echo "$text" | tr -s '\n ' '  ' |
        grep -qE 'turns"?, which are refused|turns are then refused' ||
        echo "refused turns are missing in: $(echo "$text" | head -1)"
done >"$tmp/out"
verdict help_and_page_of_generate_say_which_turns_are_refused

grep -ohE 'specbatch_[a-z_]+|SPECBATCH_[A-Z_0-9]+' docs/man/*.[13] | sort -u |
    while read -r name; do
        grep -q "\<$name\>" include/specbatch.h || echo "not in the header: $name"
    done >"$tmp/out"
grep -ohE '^\.Xr specbatch[a-z-]* [13]' docs/man/*.[13] | sort -u | while read -r _ page section; do
    [ -e "docs/man/$page.$section" ] || echo "no page $page($section)"
done >>"$tmp/out"
verdict man_pages_name_what_exists

if command -v mandoc >/dev/null 2>&1; then
    mandoc -T lint -W warning docs/man/*.[13] >"$tmp/out" 2>&1
    verdict man_pages_are_well_formed
else
    echo "SKIP man_pages_are_well_formed: no mandoc here"
fi
