#!/bin/sh
# What every verdict goes through, test/run.sh and test/lib.sh, in a small tree of tests that pass,
# fail, are skipped, say nothing or die: each is counted as what it is. A script that is interrupted
# leaves no folder behind.
. "$(dirname "$0")/../lib.sh"
house=$tmp/house
mkdir -p "$house/test/cudasim" "$house/test/a" "$house/build"
cp test/run.sh test/lib.sh "$house/test"

# put NAME: what follows on standard input, behind the line by which every script begins.
put() {
    { echo '. "$(dirname "$0")/../lib.sh"'; cat; } >"$house/test/$1"
}
put cudasim/check_cudasim.sh <<'END'
echo first >>"$ORDER"
verdict one
END
put a/check_two.sh <<'END'
echo later >>"$ORDER"
verdict two
verdict three "a finding"
echo "SKIP four: no reason"
END
put a/check_silent.sh <<'END'
echo "    ok   is not said here"
END
put a/check_dead.sh <<'END'
verdict five
exit 3
END
put a/check_mean.sh <<'END'
echo "FAIL six"
END
# says LINE: the log has it; expects WHAT GOT: two texts are equal.
says() { grep -qxF -- "$1" "$tmp/log" || { echo "no line: $1"; cat "$tmp/log"; } >>"$tmp/out"; }
expects() { [ "$1" = "$2" ] || echo "'$2' instead of '$1'" >>"$tmp/out"; }

export ORDER="$tmp/order" JOBS=1
(cd "$house" && B=build TESTS= sh test/run.sh) >"$tmp/log" 2>&1
expects 1 $?
expects '3 passed, 4 failed, 1 skipped' "$(tail -n 1 "$tmp/log")"
says 'FAIL three'
says 'FAIL a/check_silent: ran no test'
says 'FAIL a/check_dead: exit status 3'
says 'FAIL six'
expects 'first later' "$(tr '\n' ' ' <"$ORDER" | sed 's/ $//')"
verdict runner_counts_each_test_as_what_it_is

# chosen WORDS STATUS LINE: with these words as TESTS the runner ends so.
chosen() {
    (cd "$house" && B=build TESTS="$1" sh test/run.sh) >"$tmp/log" 2>&1
    expects "$2" $?
    expects "$3" "$(tail -n 1 "$tmp/log")"
}
chosen check_cudasim 0 '1 passed, 0 failed, 0 skipped'
chosen 'cudasim a/check_mean' 1 '1 passed, 1 failed, 0 skipped'
chosen a 1 '2 passed, 4 failed, 1 skipped'
chosen 'check_cudasim check_none' 1 '1 passed, 1 failed, 0 skipped'
says 'FAIL TESTS: no test and no folder is called check_none'
verdict runner_runs_what_is_named

put a/check_slow.sh <<'END'
echo "$tmp" >"$ORDER"
sleep 1
END
# Under nohup a signal is ignored, and no shell can take that back.
afresh=
env --default-signal=HUP true 2>/dev/null && afresh='env --default-signal=HUP'
for signal in HUP TERM; do
    rm -f "$ORDER"
    $afresh sh "$house/test/a/check_slow.sh" &
    while [ ! -s "$ORDER" ]; do sleep 0.1; done
    kill -$signal $!
    wait $!
    [ $? -gt 128 ] || echo "SIG$signal: it ends as if nothing had been" >>"$tmp/out"
    [ ! -e "$(cat "$ORDER")" ] || echo "SIG$signal: its folder is left" >>"$tmp/out"
done
verdict scripts_that_are_interrupted_leave_nothing
