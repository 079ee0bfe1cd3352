#!/bin/sh
# Runs tests and adds up their results: run.sh [PROGRAM...]
# It runs the programs and every script test/FOLDER/check_NAME.sh. With TESTS it runs only those
# that a word of TESTS names: by folder (sched), by name (test_adapt, check_abi) or by both
# (sched/test_adapt). B is the build folder, which keeps the output as test.log.
#
# A test prints a line `ok   NAME`, `FAIL NAME` or `SKIP NAME: WHY`. A program that ends with an
# error but without a FAIL line counts as one failure, and so does one that prints no such line.
# The last line is `N passed, N failed, N skipped`, below the tests that took longest; the exit
# status is 0 if none has failed.
here=$(dirname "$0")
log=${B:-build}/test.log
mkdir -p "$(dirname "$log")"
: >"$log"
: >"$log.seconds"

# is_named NAME WORD: whether the word names the test with this folder and name.
is_named() { case $1 in "$2" | "$2"/* | */"$2") true ;; *) false ;; esac }

# is_chosen NAME: whether TESTS names it, or there is no TESTS.
is_chosen() {
    [ -n "$TESTS" ] || return 0
    for word in $TESTS; do
        is_named "$1" "${word%.sh}" && return 0
    done
    return 1
}

names=
for test in "$@" "$here"/*/check_*.sh; do
    # build/cpu/test/sched/test_adapt and test/api/check_abi.sh: sched/test_adapt, api/check_abi.
    name=${test##*test/}
    name=${name%.sh}
    is_chosen "$name" || continue
    names="$names $name"
    echo "== $name"
    began=$(date +%s)
    case $test in *.sh) sh "$test" ;; *) "$test" ;; esac >"$log.one" 2>&1
    status=$?
    echo "$(($(date +%s) - began)) s $name" >>"$log.seconds"
    cat "$log.one"
    cat "$log.one" >>"$log"
    if [ $status -ne 0 ] && ! grep -q '^FAIL ' "$log.one"; then
        echo "FAIL $name: exit status $status" | tee -a "$log"
    elif [ $status -eq 0 ] && ! grep -Eq '^(ok  |SKIP|FAIL) ' "$log.one"; then
        echo "FAIL $name: ran no test" | tee -a "$log"
    fi
done
rm -f "$log.one"

for word in $TESTS; do
    found=
    for name in $names; do is_named "$name" "${word%.sh}" && found=1; done
    [ -n "$found" ] || echo "FAIL TESTS: no test and no folder is called $word" | tee -a "$log"
done

failures=$(grep -c '^FAIL ' "$log")
if [ "$failures" -ne 0 ]; then
    echo
    echo "failures:"
    grep '^FAIL ' "$log"
fi
echo
echo "took longest:"
sort -rn "$log.seconds" | head -n 8
rm -f "$log.seconds"
echo "$(grep -c '^ok   ' "$log") passed, $failures failed, $(grep -c '^SKIP ' "$log") skipped"
[ "$failures" -eq 0 ]
