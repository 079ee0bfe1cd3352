#!/bin/sh
# The crates of pkgconfig/rust: that their declarations are the header's, that they reach all of it,
# that their tests and the blocks of docs/rust.md pass, and that misuse does not compile. They are
# built in build/rust, with what cargo and rustc are on PATH, 1.63 or later, and without network.
. "$(dirname "$0")/../lib.sh"
crates=pkgconfig/rust
CARGO=${CARGO:-cargo}
RUSTC=${RUSTC:-rustc}

sources=$crates/specbatch/src
awk '/^extern/ { inside = 1 } inside && /pub fn/ { sub(/.*pub fn /, ""); sub(/\(.*/, ""); print }
    /^pub const/ { sub(/:/, "", $3); print $3 }' $crates/specbatch-sys/src/bindings.rs |
    sort -u >"$tmp/names"
# Default has the place of the functions that initialise options, a slice knows its length, versions
# are asked for at run time, and the size of a line is the library's affair.
but='_init$|^specbatch_result_prompt_length$|^SPECBATCH_(VERSION_[A-Z]*|SOVERSION|ERROR_MAX)$'
grep -vE "$but" "$tmp/names" |
    while read -r name; do
        grep -rqw "$name" $sources || echo "the safe crate does not use $name"
    done >"$tmp/out"
[ "$(wc -l <"$tmp/names")" -gt 150 ] || echo "hardly any names are found" >>"$tmp/out"
verdict rust_crate_reaches_every_function_and_constant

version=$(awk '/^#define SPECBATCH_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
    END { print v }' include/specbatch.h)
grep -n '^version = "\|^specbatch-sys = ' $crates/*/Cargo.toml | grep -v "\"$version\"" >"$tmp/out"
verdict rust_crates_have_the_librarys_version

if command -v "$PYTHON" >/dev/null 2>&1; then
    $PYTHON $crates/generate.py "$tmp/sys" 2>"$tmp/out"
    for file in src/bindings.rs tests/layout.rs; do
        diff "$crates/specbatch-sys/$file" "$tmp/sys/$file" >>"$tmp/out" 2>&1
    done
    verdict rust_declarations_are_what_their_script_writes
else
    echo "SKIP rust_declarations_are_what_their_script_writes: no $PYTHON here"
fi

why=
$RUSTC --version >/dev/null 2>&1 || why="no $RUSTC here"
$CARGO --version >/dev/null 2>&1 || why="no $CARGO here"
[ -z "$SAN" ] || why="a sanitized library cannot be loaded into an ordinary program"
if [ -n "$why" ]; then
    for name in crates_build tests documentation page program misuse examples; do
        echo "SKIP rust_$name: $why"
    done
    exit
fi
target=$root/build/rust
export SPECBATCH_DIR="$root/$B" LD_LIBRARY_PATH="$root/$B" CARGO_TARGET_DIR="$target" RUSTC
export CARGO_HOME="$tmp/cargo" RUSTFLAGS="-D warnings" RUSTDOCFLAGS="-D warnings"

# run_cargo SUBCOMMAND ARGUMENTS...: in the workspace, without make's flags or the network.
run_cargo() {
    (cd $crates && env -u MAKEFLAGS -u MFLAGS "$CARGO" --offline "$@" --locked)
}

# logged NAME COMMAND...: what the command printed is shown if it fails.
logged() {
    name=$1
    shift
    "$@" >"$tmp/log" 2>&1 || cat "$tmp/log" >"$tmp/out"
    verdict "$name"
}
logged rust_crates_build run_cargo build -q
logged rust_tests run_cargo test -q
logged rust_documentation run_cargo doc -q --no-deps
deps="-L dependency=$target/debug/deps -L native=$root/$B --edition 2021"
extern="--extern specbatch=$target/debug/libspecbatch.rlib"
${RUSTDOC:-rustdoc} --test docs/rust.md $deps $extern >"$tmp/log" 2>&1
grep -q "^test result: ok. $(grep -c '^```rust' docs/rust.md) passed" "$tmp/log" ||
    cat "$tmp/log" >"$tmp/out"
verdict rust_page
awk '/^```rust$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md |
    sed 's|Qwen3-8B|examples/demo/target|; s|Qwen3-0.6B|examples/demo/draft|' >"$tmp/readme.rs"
$RUSTC -o "$tmp/readme" $deps $extern "$tmp/readme.rs" >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >"$tmp/out"
[ "$("$tmp/readme" 2>>"$tmp/out" | wc -c)" -gt 100 ] || echo "it writes no answer" >>"$tmp/out"
verdict rust_program_of_the_readme

# Each case of misuse.txt is compiled with this before it, and fails by its code and no other.
use='#![allow(unused, dead_code)]
use specbatch::*;
use std::{ops::ControlFlow, thread};'
awk -v folder="$tmp" -v use="$use" 'sub(/^\/\/# /, "") {
        file = folder "/case" ++n ".rs"; print >(folder "/cases"); print use >file; next }
    file { print >file }' $crates/specbatch/tests/misuse.txt
n=0
while read -r code what; do
    n=$((n + 1))
    $RUSTC --crate-type lib --emit metadata -o "$tmp/case" $deps $extern "$tmp/case$n.rs" \
        >"$tmp/log" 2>&1 && echo OK >>"$tmp/log"
    [ "$(grep -oE '^error\[E[0-9]*|^OK' "$tmp/log" | sed 's/.*\[//' | sort -u)" = "$code" ] ||
        { echo "$what: not $code, but:"; grep -A1 '^error' "$tmp/log"; } >>"$tmp/out"
done <"$tmp/cases"
[ "$n" -gt 10 ] || echo "only $n cases were found" >>"$tmp/out"
verdict rust_misuse_does_not_compile

model=test/data/models/emoji
tab=$(printf '\t')
set --
while IFS="$tab" read -r prompt answer; do
    set -- "$@" "$prompt"
    printf '%s= %s\n' $# "$answer"
done <$model/known.tsv >"$tmp/want"
"$target/debug/examples/stream" $model "$@" >"$tmp/got" 2>&1
grep '^[1-3]= ' "$tmp/got" | sort | diff "$tmp/want" - >"$tmp/out"
sed -n 's/> .*//p' "$tmp/got" | uniq | wc -l | grep -qv '^[0-3]$' ||
    echo "the answers come one after the other" >>"$tmp/out"
"$target/debug/examples/generate" $model $model flag 20 >"$tmp/got" 2>&1
tail -n 1 "$tmp/got" | grep -qx 'equal to plain decoding: true' || cat "$tmp/got" >>"$tmp/out"
verdict rust_examples
