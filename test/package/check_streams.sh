#!/bin/sh
# Programs that stream text, in each language that examples/ has one in, compiled and run as a user
# does it. They stream three answers at once, from a checkpoint whose answers are known and full of
# emoji that are two to four tokens each (test/data/models/make_emoji.py). The programs take
#     MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]
# and print the lines that examples/stream.c describes. As every event is a line, what they print
# is not UTF-8 if a character is torn.
. "$(dirname "$0")/../lib.sh"
model=test/data/models/emoji
tab=$(printf '\t')
end='eos, [0-9]* tokens in [0-9]* passes, [0-9]* of [0-9]* proposals accepted'
end="$end; waited [0-9.]* ms, first token after [0-9.]* ms, all after [0-9.]* ms"

if command -v "$PYTHON" >/dev/null 2>&1; then
    $PYTHON test/data/models/make_emoji.py "$tmp/emoji" >"$tmp/out" 2>&1
    diff -r $model "$tmp/emoji" >>"$tmp/out"
    verdict streams_checkpoint_is_what_its_script_makes
else
    echo "SKIP streams_checkpoint_is_what_its_script_makes: no $PYTHON here"
fi
awk -F"$tab" '{ print "R" NR "= " $2 }' $model/known.tsv >"$tmp/want"

# ask COMMAND...: runs the command with the names and the prompts behind its arguments.
ask() {
    number=0
    while IFS="$tab" read -r prompt answer; do
        number=$((number + 1))
        set -- "$@" "R$number" "$prompt"
    done <$model/known.tsv
    "$@"
}

# The events of each request, put together, and written like the lines of results.
put_together() {
    LC_ALL=C awk '/^R[1-3]> / { text[substr($0, 2, 1)] = text[substr($0, 2, 1)] substr($0, 5) }
        END { for (i = 1; i <= 3; i++) print "R" i "= " text[i] }' "$1"
}

# streams LANGUAGE COMMAND...: the program streams the known answers.
streams() {
    language=$1
    shift
    for policy in plain ragged; do
        ask "$@" $model $policy >"$tmp/got" 2>"$tmp/log" || cat "$tmp/log" >>"$tmp/out"
        iconv -f UTF-8 -t UTF-8 "$tmp/got" 2>&1 >"$tmp/valid" | sed 's/^/a torn character: /' \
            >>"$tmp/out"
        put_together "$tmp/got" | diff "$tmp/want" - >>"$tmp/out"
        grep -a '^R[1-3]= ' "$tmp/got" | sort | diff "$tmp/want" - >>"$tmp/out"
        [ "$(grep -ac "^R[1-3]: $end\$" "$tmp/got")" -eq 3 ] || cat "$tmp/got" >>"$tmp/out"
        [ "$(LC_ALL=C sed -n 's/> .*//p' "$tmp/got" | uniq | wc -l)" -gt 3 ] ||
            echo "the answers come one after the other" >>"$tmp/out"
        speculated=$(grep -ac ', [1-9][0-9]* of [0-9]* proposals' "$tmp/got")
        case $policy:$speculated in
        plain:0 | ragged:[1-3]) ;;
        *) echo "$speculated answers have tokens that were proposed" >>"$tmp/out" ;;
        esac
        verdict "streams_known_answers_in_${language}_$policy"
    done
}

# compiled LANGUAGE COMPILER ARGUMENTS...: the same for a program to be compiled.
compiled() {
    language=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "SKIP streams_known_answers_in_$language: no $1 here"
    elif "$@" -Wall -Wextra -Wpedantic -Werror ${SAN:+-fsanitize=$SAN} -Iinclude -L"$B" \
        -lspecbatch -Wl,-rpath,"$root/$B" -o "$tmp/$language" >"$tmp/out" 2>&1; then
        streams "$language" "$tmp/$language"
    else
        verdict "streams_compile_in_$language"
    fi
}

compiled c $CC -std=c11 examples/stream.c
compiled cxx $CXX -std=c++17 examples/stream.cc

if [ -n "$SAN" ]; then
    why="a sanitized library cannot be loaded into an ordinary program"
    echo "SKIP streams_known_answers_in_python: $why"
    echo "SKIP streams_known_answers_in_rust: $why"
    exit
fi

if command -v "$PYTHON" >/dev/null 2>&1; then
    streams python env LD_LIBRARY_PATH="$root/$B" PYTHONDONTWRITEBYTECODE=1 \
        $PYTHON -X dev -W error examples/stream.py
else
    echo "SKIP streams_known_answers_in_python: no $PYTHON here"
fi

# Rust is no part of `make setup`. A rustc that rustup has put there may have no toolchain; and one
# that finds make's flags, but not its job server, says so.
RUSTC=${RUSTC:-rustc}
if ! $RUSTC --version >/dev/null 2>&1; then
    echo "SKIP streams_known_answers_in_rust: no $RUSTC here"
elif env -u MAKEFLAGS -u MFLAGS $RUSTC --edition 2021 -D warnings -L "$B" \
    -C link-arg=-Wl,-rpath,"$root/$B" examples/stream.rs -o "$tmp/rust" >"$tmp/out" 2>&1; then
    streams rust "$tmp/rust"
else
    verdict streams_compile_in_rust
fi
