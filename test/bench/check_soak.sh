#!/bin/sh
# The soak (soak.c) in short: its pools end well, and too few requests to compare memory with are
# refused. `make release-check` has a long one.
. "$(dirname "$0")/../lib.sh"
soak=$B/test/bench/soak
if [ -n "$SAN" ]; then
    echo "SKIP soak: a sanitizer keeps what is freed"
    exit
fi
$soak --requests 1000 --audit 5 --session "$tmp/session" >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >"$tmp/out"
[ "$(grep -c ' 200 requests, ' "$tmp/log")" -eq 5 ] || cat "$tmp/log" >>"$tmp/out"
verdict soak_ends_well
$soak --requests 999 >"$tmp/log" 2>&1
[ $? -eq 2 ] && grep -q '^soak: --requests: ' "$tmp/log" || cat "$tmp/log" >"$tmp/out"
verdict soak_refuses_too_few_requests
