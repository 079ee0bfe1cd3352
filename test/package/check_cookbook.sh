#!/bin/sh
# Each block of docs/cookbook.md and docs/exactness.md runs and prints what the page shows below it.
# The first C block of the cookbook stands before each of the others, of both pages. A block of
# shell commands runs in a folder that looks like the tree after `make`.
. "$(dirname "$0")/../lib.sh"

# A block of C, shell or text becomes a file NUMBER.c, .sh or .text; text has the number of the
# block above it.
for page in cookbook exactness; do
    mkdir "$tmp/$page"
    awk '/^```(c|sh|python|text)$/ {
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
compile() {
    cat "$tmp/preamble.c" "$1" >"$tmp/recipe.c"
    # The beginning has what some programs do not need.
    $CC -std=c11 -Wall -Wextra -Wpedantic -Wno-unused-function -Werror ${SAN:+-fsanitize=$SAN} \
        -D_POSIX_C_SOURCE=200809L -Iinclude "$tmp/recipe.c" -L"$B" -lspecbatch \
        -Wl,-rpath,"$root/$B" -lm -pthread -o "$tmp/recipe"
}

n=0
for block in "$tmp"/cookbook/*.c "$tmp"/cookbook/*.sh "$tmp"/exactness/*.c "$tmp"/exactness/*.sh; do
    [ -e "$block" ] || continue
    n=$((n + 1))
    case $block in
    *.c) compile "$block" >"$tmp/out" 2>&1 && (cd "$tmp/tree" && "$tmp/recipe") ;;
    *.sh) (cd "$tmp/tree" && sh -e "$block") ;;
    esac >"$tmp/got" 2>"$tmp/log" || { cat "$block" "$tmp/log"; } >>"$tmp/out"
    diff "${block%.*}.text" "$tmp/got" >>"$tmp/out" 2>&1
    [ ! -s "$tmp/out" ] || echo "in block $(basename "${block%.*}")" >>"$tmp/out"
    verdict "recipe_$(basename "$(dirname "$block")")_$(basename "${block%.*}")"
done
[ "$n" -ge 14 ] || echo "the pages have $n blocks only" >"$tmp/out"
verdict recipes_are_found
