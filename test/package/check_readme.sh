#!/bin/sh
# The README and docs/ do not drift from the tree: examples/minimal.c is in the README word for
# word, the README's commands do what it says, and the files, functions, counters and make targets
# that the pages name exist.
. "$(dirname "$0")/../lib.sh"

awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md |
    diff examples/minimal.c - >"$tmp/out"
verdict readme_has_minimal_c_word_for_word

[ "$(wc -l <examples/minimal.c)" -le 60 ] || echo "minimal.c has more than 60 lines" >"$tmp/out"
[ "$(wc -l <examples/minimal.py)" -lt 80 ] || echo "minimal.py has 80 lines or more" >>"$tmp/out"
verdict minimal_programs_are_minimal

# text PAGE: without its blocks of code. places PAGE: what "#" leads to, made of headings.
text() { awk '/^ *```/ { code = !code } !code' "$1"; }
places() {
    text "$1" | sed -n 's/^##* //p' | tr 'A-Z' 'a-z' | sed "s/[][()\`',.:;=?!\"/<>*+]//g; s/ /-/g"
}
for page in README.md docs/*.md; do
    text "$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -v '^https\?:' |
        while IFS='#' read -r file place; do
            other=$page
            [ -z "$file" ] || other=$(dirname "$page")/$file
            [ -e "$other" ] || { echo "$page: no such file: $file"; continue; }
            [ -z "$place" ] || places "$other" | grep -qxF -- "$place" ||
                echo "$page: no such place: $file#$place"
        done
done >"$tmp/out"
verdict documentation_links_exist

run_make help | sed -n 's/^  \([a-z-]*\)  .*/\1/p' >"$tmp/targets"
grep -oE '`make [a-z -]+`' README.md docs/*.md | sed 's/.*`make //; s/`//' | tr ' ' '\n' |
    sort -u | grep -vxF -f "$tmp/targets" >"$tmp/out"
verdict documentation_names_make_targets_that_exist

# Public names and files are written in backquotes. NAME and CONSTANT stand for any name. LIBRARY,
# DIR and STATIC end variables of the environment, which packages for other languages read.
grep -ohE '`(specbatch_[a-z0-9_]+|SPECBATCH_[A-Z0-9_]+)' README.md docs/*.md | tr -d '`' |
    sort -u | grep -vE '_(NAME|CONSTANT|LIBRARY|DIR|STATIC)$' | while read -r name; do
        grep -q "$name" include/specbatch.h || echo "not in the header: $name"
    done >"$tmp/out"
verdict documentation_names_functions_that_exist
folders='src|kernels|examples|test|docs|include|pkgconfig'
grep -ohE "\`($folders)/[A-Za-z0-9_./-]+\`" README.md docs/*.md | tr -d '`' | sort -u |
    grep -v NAME | while read -r file; do
        [ -e "$file" ] || echo "no such file: $file"
    done >"$tmp/out"
verdict documentation_names_files_that_exist

grep -oE ' X\([a-z_]+\)' src/stats.h | sed 's/ X(//; s/)//' |
    while read -r name; do
        grep -q "\`$name\`" docs/stats.md || echo "docs/stats.md lacks $name"
    done >"$tmp/out"
verdict documentation_explains_every_counter

# The commands of the README, run as they stand there, with an empty folder for a home. `make setup`
# and `make check` are left to .ci/run.
if [ -n "$SAN" ]; then
    echo "SKIP readme_commands: a sanitized build is slow, and not for installation"
    exit
fi
commands() { sed -n "s/^\(make $1[^ ]*\( [A-Z]*=[^ ]*\)*\)  *[a-z].*/\1/p" README.md; }
run_make $(commands demo | cut -d' ' -f2-) >"$tmp/log" 2>&1 || cat "$tmp/log" >"$tmp/out"
[ "$(grep -c 'equivalence 16/16$' "$tmp/log")" -eq 7 ] || cat "$tmp/log" >>"$tmp/out"
verdict readme_demo_prints_what_is_said

# What the README runs next is there after `make setup demo`.
run_make -n O="$tmp/fresh" demo >"$tmp/log" 2>&1
grep -q "cp .*/examples/generate .* $tmp/fresh/build/examples" "$tmp/log" ||
    echo "make demo does not build generate" >"$tmp/out"
verdict readme_demo_builds_all_examples

# The example with real models, on the demo pair: other names, and fewer tokens.
head -n 4 examples/demo/prompts.jsonl >"$tmp/prompts.jsonl"
awk '/^build\/examples\/generate / { inside = 1 } /^```/ { inside = 0 } inside' README.md |
    sed "s|build/examples|$B/examples|; s|Qwen3-8B|examples/demo/target|
         s|Qwen3-0.6B|examples/demo/draft|; s|--max-new 256 --chat qwen3|--max-new 16|
         s|\([a-z]*\.json\)|$tmp/\1|g" >"$tmp/command"
sh -e "$tmp/command" >"$tmp/log" 2>&1 || cat "$tmp/log" >"$tmp/out"
grep -q '^equivalence 4/4$' "$tmp/log" || cat "$tmp/command" "$tmp/log" >>"$tmp/out"
verdict readme_generate_command_runs

# The same programs in other languages, on the demo pair. Rust's is compiled by check_rust.sh.
program() {
    awk '$0 == "```" language { inside = 1; next } /^```$/ { inside = 0 } inside' language="$1" \
        README.md | sed 's|Qwen3-8B|examples/demo/target|; s|Qwen3-0.6B|examples/demo/draft|'
}
program cpp >"$tmp/program.cc"
$CXX -std=c++17 -Wall -Wextra -Werror -Iinclude "$tmp/program.cc" -L"$B" -lspecbatch \
    -Wl,-rpath,"$root/$B" -o "$tmp/program" >"$tmp/out" 2>&1 && "$tmp/program" >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >>"$tmp/out"
[ "$(wc -c <"$tmp/log")" -gt 100 ] || cat "$tmp/log" >>"$tmp/out"
verdict readme_program_in_cpp_runs
if command -v "$PYTHON" >/dev/null 2>&1; then
    program python >"$tmp/program.py"
    SPECBATCH_LIBRARY="$root/$B/libspecbatch.so" PYTHONPATH=pkgconfig/python \
        PYTHONDONTWRITEBYTECODE=1 $PYTHON "$tmp/program.py" >"$tmp/log" 2>&1 ||
        cat "$tmp/log" >"$tmp/out"
    grep -q '^2 ' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
    verdict readme_program_in_python_runs
else
    echo "SKIP readme_program_in_python_runs: no $PYTHON here"
fi

if ! command -v pkg-config >/dev/null 2>&1; then
    echo "SKIP readme_install: no pkg-config here"
    exit
fi
# expanded WORDS: with $HOME in them.
expanded() { echo "$*" | sed "s|\$HOME|$tmp/home|g"; }
mkdir "$tmp/home" "$tmp/empty"
run_make $(expanded $(commands install | cut -d' ' -f2-)) >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >"$tmp/out"
cp examples/minimal.c "$tmp/empty"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$tmp/command"
(cd "$tmp/empty" && HOME="$tmp/home" sh -e "$tmp/command") >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >>"$tmp/out"
env -u LD_LIBRARY_PATH "$tmp/empty/minimal" examples/demo/target examples/demo/draft "It was" \
    >"$tmp/log" 2>&1
grep -q 'target passes' "$tmp/log" || cat "$tmp/command" "$tmp/log" >>"$tmp/out"
verdict readme_compile_line_runs
run_make $(expanded $(commands uninstall | cut -d' ' -f2-)) >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >>"$tmp/out"
find "$tmp/home" ! -type d >>"$tmp/out"
verdict readme_uninstall_leaves_nothing
