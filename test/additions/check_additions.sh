#!/bin/sh
# Every addition has one place. A new policy is a file, a line in a table and a constant; a new
# architecture is a file and a word in a table. A copy of the tree gets both (policy_shortest.c and
# arch_glm.c beside this script) by exactly the edits that docs/architecture.md lists. It has to
# build, and to keep the contract with the policy and on the architecture.
. "$(dirname "$0")/../lib.sh"
built=$root/$B
B=build/cpu # in the copy

if [ -n "$SAN" ]; then
    echo "SKIP additions: a sanitized build takes too long to be made again"
    exit
fi

# check NAME: a verdict without which there is nothing to go on with.
check() {
    if [ -s "$tmp/out" ]; then
        verdict "$1"
        exit
    fi
    verdict "$1"
}

# copy_tree: what a build needs. Checkpoints and other data are only read, so links to them do.
copy_tree() {
    mkdir "$tmp/tree" && cd "$tmp/tree" && mkdir test examples || return 1
    for part in include src kernels pkgconfig Makefile "$root"/*.mk; do
        [ ! -e "$root/${part##*/}" ] || cp -R "$root/${part##*/}" . || return 1
    done
    (cd "$root/test" && tar -cf - --exclude=./data .) | (cd test && tar -xf -) &&
        (cd "$root/examples" && tar -cf - --exclude=./demo .) | (cd examples && tar -xf -) &&
        chmod -R u+w . && ln -s "$root/test/data" test/data &&
        ln -s "$root/examples/demo" examples/demo && cp -R src include "$tmp"
}
copy_tree >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
check additions_copy_the_tree

# The edits: two files, two new lines, and a word in a third line. An addition that needs more than
# that is a fault of the library.
number=$(grep -c '^ *SPECBATCH_POLICY_[A-Z]* = ' include/specbatch.h)
cp test/additions/policy_shortest.c src/sched/
sed -i "s/^\( *\)SPECBATCH_POLICY_RAGGED = .*/&\n\1SPECBATCH_POLICY_SHORTEST = $number,/" \
    include/specbatch.h
sed -i 's/^#define SB_POLICIES(X) .*\\$/&\n    X(SHORTEST, shortest) \\/' src/sched/policies.h
cp test/additions/arch_glm.c src/model/
sed -i '/^    X(llama) /s/X(llama)/& X(glm)/' src/model/arch.c

{
    diff -r "$tmp/include" include
    diff -r "$tmp/src" src
} >"$tmp/edits"
edits() { grep -c "$1" "$tmp/edits"; }
[ "$(edits '^Only in') $(edits '^>') $(edits '^<')" = "2 3 1" ] || cp "$tmp/edits" "$tmp/out"
check additions_are_two_files_and_three_lines

# Kernels know nothing of policies and architectures, so they are those of the build.
run_make $(take_kernels "$built" $B) -j"$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)" CUDA=0 \
    CFLAGS=-O1 $B/test/contract/test_contract $B/examples/generate $B/test/bench/make_checkpoint \
    >"$tmp/log" 2>&1 || cp "$tmp/log" "$tmp/out"
check additions_build

# generate NAME ...: writes what the demo pair makes of 16 prompts into the file NAME.
generate() {
    name=$1
    shift
    $B/examples/generate --target examples/demo/target --draft examples/demo/draft --max-new 16 \
        --logprobs --in-order --prompts examples/demo/prompts.jsonl --output "$tmp/$name" "$@" \
        >"$tmp/log" 2>&1 || cat "$tmp/log" >>"$tmp/out"
}
generate plain --policy plain --batch 1
generate shortest --policy shortest --batch 3 --window 9 --stats "$tmp/stats" --verify
cmp "$tmp/plain" "$tmp/shortest" >>"$tmp/out" 2>&1
grep -qx 'equivalence 16/16' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
grep -q '"policy": "shortest"' "$tmp/stats" ||
    echo "the statistics do not name the policy" >>"$tmp/out"
verdict additions_generate_knows_the_policy_by_name

# A tiny checkpoint of the new architecture, with the vocabulary and the end-of-sequence id of those
# in the tree.
$B/test/bench/make_checkpoint "$tmp/glm" --arch glm --hidden 72 --inter 136 --layers 3 --heads 6 \
    --kv-heads 2 --head-dim 24 --vocab 517 --context 512 --dtype bf16 --std 0.3 --seed 7 \
    >"$tmp/out" 2>&1 && sed -i 's/"hidden_act"/"eos_token_id": 2, &/' "$tmp/glm/config.json"
check additions_make_a_checkpoint

# The traces of every policy run on the models in the tree, and then on that checkpoint. They print
# a line for each policy.
SB_TEST_MODEL=$tmp/glm $B/test/contract/test_contract every_policy >"$tmp/log" 2>&1 ||
    cat "$tmp/log" >>"$tmp/out"
grep -q '^ok   test_every_policy_with_every_draft$' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
[ "$(grep -c '^     shortest  *[1-9][0-9]* requests, ' "$tmp/log")" -eq 2 ] ||
    { echo "not two lines about shortest:" && cat "$tmp/log"; } >>"$tmp/out"
verdict additions_the_contract_holds_under_the_policy
grep -q '^ok   test_every_policy_on_the_given_checkpoint$' "$tmp/log" ||
    cat "$tmp/log" >>"$tmp/out"
[ "$(grep -c ' [1-9][0-9]* requests, ' "$tmp/log")" -eq $((2 * number + 2)) ] ||
    { echo "not $((number + 1)) policies on two sets of models:" && cat "$tmp/log"; } >>"$tmp/out"
verdict additions_the_contract_holds_on_the_architecture
