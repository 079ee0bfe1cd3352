#!/bin/sh
# Each command of docs/requests.md runs, and writes something.
. "$(dirname "$0")/../lib.sh"

awk '/^```sh$/ { n++; inside = 1; next }
     /^```$/ { inside = 0 }
     inside { print >(dir "/block" n) }' dir="$tmp" docs/requests.md
for block in "$tmp"/block*; do
    sed "s#build/examples/#$B/examples/#g; s#build/prompts.table#$tmp/table#g" "$block" >"$block.sh"
    sh -e "$block.sh" >"$tmp/log" 2>&1 && [ -s "$tmp/log" ] ||
        { cat "$block" "$tmp/log"; } >>"$tmp/out"
    n=$((n + 1))
done
[ "${n:-0}" -ge 15 ] || echo "docs/requests.md has $n commands only" >>"$tmp/out"
verdict commands_of_the_page_on_requests_run
