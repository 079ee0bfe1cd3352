#!/bin/sh
# Each block of docs/cookbook.md and docs/exactness.md runs and prints what the page shows below it.
# The first C block of the cookbook stands before each of the others, of both pages. A block of
# shell commands runs in a folder that looks like the tree after `make`.
. "$(dirname "$0")/../lib.sh"

# A block of C, C++, shell, Python or text becomes a file NUMBER.c, .cpp, .sh, .python or .text;
# text has the number of the block above it.
for page in cookbook exactness; do
    mkdir "$tmp/$page"
    awk '/^```(c|cpp|sh|python|text)$/ {
            kind = substr($0, 4)
            number += kind != "text"
            file = sprintf("%s/%02d.%s", dir, number, kind)
            printf "" >file
            next
        }
        /^```$/ { file = "" }
        file { print >file }' dir="$tmp/$page" "docs/$page.md"
done
mv "$tmp/cookbook/01.c" "$tmp/preamble.c"

mkdir -p "$tmp/tree/build"
ln -s "$root/examples" "$root/include" "$tmp/tree"
ln -s "$root/$B/examples" "$tmp/tree/build/examples"
# with COMPILER...: compiles $tmp/recipe.*; the beginning has what some programs do not need.
with() {
    "$@" -Wall -Wextra -Wpedantic -Wno-unused-function -Werror ${SAN:+-fsanitize=$SAN} -Iinclude \
        -L"$B" -lspecbatch -Wl,-rpath,"$root/$B" -lm -pthread -o "$tmp/recipe" >"$tmp/out" 2>&1
}
# run BLOCK: what it writes to stdout. What a compiler has to say is a finding.
run() {
    cd "$root" || return
    case $1 in
    *.c)
        cat "$tmp/preamble.c" "$1" >"$tmp/recipe.c"
        with $CC -std=c11 -D_POSIX_C_SOURCE=200809L "$tmp/recipe.c" && cd "$tmp/tree" && ../recipe
        ;;
    *.cpp)
        cp "$1" "$tmp/recipe.cc"
        with $CXX -std=c++17 "$tmp/recipe.cc" && cd "$tmp/tree" && ../recipe
        ;;
    *.python)
        SPECBATCH_LIBRARY=$root/$B/libspecbatch.so PYTHONPATH=$root/pkgconfig/python \
            PYTHONDONTWRITEBYTECODE=1 $PYTHON "$1"
        ;;
    *.sh) cd "$tmp/tree" && sh -e "$1" ;;
    esac
}

n=0
for block in "$tmp"/*/*.c "$tmp"/*/*.cpp "$tmp"/*/*.sh "$tmp"/*/*.python; do
    name=$(basename "$(dirname "$block")")_$(basename "${block%.*}")
    n=$((n + 1))
    case $block in *.python)
        if [ -n "$SAN" ] || ! command -v "$PYTHON" >/dev/null 2>&1; then
            echo "SKIP recipe_$name: no $PYTHON here, or a sanitized library, which it cannot load"
            continue
        fi
        ;;
    esac
    (run "$block") >"$tmp/got" 2>"$tmp/log" || { cat "$block" "$tmp/log"; } >>"$tmp/out"
    diff "${block%.*}.text" "$tmp/got" >>"$tmp/out" 2>&1
    verdict "recipe_$name"
done
[ "$n" -ge 16 ] || echo "the pages have $n blocks only" >"$tmp/out"
verdict recipes_are_found
