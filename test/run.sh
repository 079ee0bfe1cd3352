#!/bin/sh
# Runs tests and adds up their results: run.sh [PROGRAM...]
# It runs every script test/FOLDER/check_NAME.sh and the programs. With TESTS it runs only those
# that a word of TESTS names: by folder (sched), by name (test_adapt, check_abi) or by both
# (sched/test_adapt). JOBS tests run at a time, by default one for each processor; each one's output
# is printed whole, in the order of the list. Scripts come first, because the longest tests are
# among them, and of these the longest of all. B is the build folder, which keeps the output as
# test.log.
#
# A test prints a line `ok   NAME`, `FAIL NAME` or `SKIP NAME: WHY`. A program that ends with an
# error but without a FAIL line counts as one failure, and so does one that prints no such line.
# The last line is `N passed, N failed, N skipped`, below the tests that took longest; the exit
# status is 0 if none has failed.
#
# xargs runs `run.sh --one NUMBER TEST` for each line of the list. That leaves the test's output in
# the file NUMBER of the folder $parts, where it appears whole, and then prints the number. The loop
# that reads the numbers prints the files whose turn has come.
here=$(dirname "$0")
log=${B:-build}/test.log
parts=$log.parts

# name_of TEST: build/cpu/test/sched/test_adapt and test/api/check_abi.sh are called
# sched/test_adapt and api/check_abi.
name_of() {
    name=${1##*test/}
    echo "${name%.sh}"
}

# one NUMBER TEST: runs a test.
one() {
    part=$parts/$1
    name=$(name_of "$2")
    echo "== $name" >"$part.now"
    began=$(date +%s)
    case $2 in *.sh) sh "$2" ;; *) "$2" ;; esac >>"$part.now" 2>&1
    status=$?
    echo "$(($(date +%s) - began)) s $name" >"$part.seconds"
    if [ $status -ne 0 ] && ! grep -q '^FAIL ' "$part.now"; then
        echo "FAIL $name: exit status $status" >>"$part.now"
    elif [ $status -eq 0 ] && ! grep -Eq '^(ok  |SKIP|FAIL) ' "$part.now"; then
        echo "FAIL $name: ran no test" >>"$part.now"
    fi
    mv "$part.now" "$part"
    echo "$1"
}
if [ "$1" = --one ]; then
    one "$2" "$3"
    exit
fi

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

rm -rf "$parts" && mkdir -p "$parts" || exit 1
: >"$log"
count=0
longest=$here/cudasim/check_cudasim.sh
for test in "$longest" "$here"/*/check_*.sh "$@"; do
    [ "$test" = "$longest" ] && [ $count -gt 0 ] && continue
    name=$(name_of "$test")
    is_chosen "$name" || continue
    count=$((count + 1))
    echo "$count $test"
done >"$parts/list"
names=$(while read -r number test; do name_of "$test"; done <"$parts/list")

next=1
xargs -n 2 -P "${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)}" sh "$0" --one \
    <"$parts/list" | while read -r number; do
    while [ -e "$parts/$next" ]; do
        tee -a "$log" <"$parts/$next"
        next=$((next + 1))
    done
done
while read -r number test; do
    [ -e "$parts/$number" ] || echo "FAIL $(name_of "$test"): was not run" | tee -a "$log"
done <"$parts/list"

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
cat "$parts"/*.seconds 2>/dev/null | sort -rn | head -n 8
rm -rf "$parts"
echo "$(grep -c '^ok   ' "$log") passed, $failures failed, $(grep -c '^SKIP ' "$log") skipped"
[ "$failures" -eq 0 ]
