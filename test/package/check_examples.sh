#!/bin/sh
# The example programs as a user runs them: with the demo pair of models, and with a checkpoint that
# has no tokenizer. What stream.c prints is compared in check_streams.sh.
. "$(dirname "$0")/../lib.sh"
generate=$B/examples/generate
demo=examples/demo
pair="--target $demo/target --draft $demo/draft"

# check_log COMMAND...: the command succeeds; if it does not, what it printed is a finding.
check_log() { "$@" >"$tmp/log" 2>&1 || cat "$tmp/log" >>"$tmp/out"; }
# has PATTERN: a line of that log matches; if none does, the whole log is a finding.
has() { grep -q -- "$1" "$tmp/log" || cat "$tmp/log" >>"$tmp/out"; }
# same_as_plain FILE: these results are byte for byte those of plain decoding.
same_as_plain() { cmp "$tmp/plain" "$1" >>"$tmp/out" 2>&1; }

# Every second of the 16 prompts, which are of two kinds, and 24 tokens each: then every test here
# takes a second or two.
awk 'NR % 2' $demo/prompts.jsonl >"$tmp/prompts"
run() {
    $generate $pair --prompts "$tmp/prompts" --max-new 24 --batch 3 --draft-len 4 --logprobs \
        --compute f32 --in-order "$@"
}

check_log run --policy plain --batch 1 --output "$tmp/plain"
[ "$(wc -l <"$tmp/plain")" -eq 8 ] || echo "there is not one line for each prompt" >>"$tmp/out"
form='^{"id":\([0-9]*\),"ids":\[[0-9,]*\],"text":".*"'
form=$form',"finish":"[a-z]*","logprobs":\[[-0-9.e,]*\]}$'
order=$(sed "s/$form/\1/" "$tmp/plain" | tr '\n' ' ')
[ "$order" = "1 2 3 4 5 6 7 8 " ] || echo "the lines, or their order: $order" >>"$tmp/out"
verdict generate_writes_a_line_for_each_prompt

# Another program has computed the golden tokens. At each of them the best two candidates are
# further apart than the two programs' rounding.
sed 's/.*"ids": \[\([^]]*\)\], "margin.*/\1/; s/ //g' $demo/golden.jsonl | awk 'NR % 2' |
    cut -d, -f1-24 >"$tmp/want"
tokens_of() { sed 's/.*"ids":\[\([^]]*\)\].*/\1/' "$1"; }
tokens_of "$tmp/plain" | diff "$tmp/want" - >"$tmp/out"
verdict generate_gives_the_golden_tokens

# The option --compute chooses the class, which the statistics name. SPLIT rounds otherwise than
# F32, and as little.
for class in f32 bf16 split; do
    check_log run --compute $class --policy plain --batch 1 --output "$tmp/$class"
    check_log run --compute $class --fixed-k --output "$tmp/fast" --stats "$tmp/stats" --verify
    has '^equivalence 8/8$'
    cmp "$tmp/$class" "$tmp/fast" >>"$tmp/out" 2>&1
    grep -q "\"fingerprint\": \".*; cpu-$class: " "$tmp/stats" || cat "$tmp/stats" >>"$tmp/out"
    verdict generate_in_the_class_$class
done
tokens_of "$tmp/split" | diff "$tmp/want" - >"$tmp/out"
for class in bf16 split; do
    cmp -s "$tmp/$class" "$tmp/plain" && echo "$class has the bits of f32" >>"$tmp/out"
done
verdict generate_gives_the_golden_tokens_in_the_class_split

for policy in eqspec exspec ragged rollback; do
    check_log run --policy $policy --fixed-k --window 5 --output "$tmp/$policy" \
        --stats "$tmp/stats" --verify
    same_as_plain "$tmp/$policy"
    has '^equivalence 8/8$'
    grep -q '"tokens_committed": [1-9]' "$tmp/stats" || echo "the stats lack counters" >>"$tmp/out"
    verdict generate_${policy}_equals_plain_byte_for_byte
done

# Answers end before the first of the texts, whatever the policy.
check_log run --policy plain --batch 1 --stop . --stop ' per' --output "$tmp/stopped"
check_log run --policy exspec --stop . --stop=' per' --output "$tmp/got" --verify
has '^equivalence 8/8$'
cmp "$tmp/stopped" "$tmp/got" >>"$tmp/out" 2>&1
sed 's/.*"text":"//; s/","finish.*//' "$tmp/stopped" | grep '[.]\| per' >>"$tmp/out"
[ "$(grep -c '"finish":"stop"' "$tmp/stopped")" -ge 3 ] || cat "$tmp/stopped" >>"$tmp/out"
verdict generate_ends_answers_before_a_text

# Tokens cannot show a draft that proposes badly, say from wrong entries of its cache, but these
# counts do. They are those of the demo pair in each class of arithmetic.
acceptance() {
    check_log run --compute "$1" --batch 1 --fixed-k --output "$tmp/counted" --stats "$tmp/stats"
    sed -n 's/^ *"tokens_\([a-z]*\)": \([0-9]*\).*/\1 \2/p' "$tmp/stats" | tr '\n' ' ' >"$tmp/got"
    echo "committed 192 drafted $2 accepted $3 forced 0 " | tr -d '\n' |
        diff - "$tmp/got" >>"$tmp/out"
    verdict "generate_drafts_as_well_as_ever_in_$1"
}
acceptance f32 222 124
acceptance bf16 222 124
acceptance split 222 124

check_log run --output "$tmp/adaptive" --stats "$tmp/stats" --verify
same_as_plain "$tmp/adaptive"
grep -q '"draft_len_is": "a limit"' "$tmp/stats" || echo "K is not adaptive" >>"$tmp/out"
grep -q '"plain_rounds": [1-9]' "$tmp/stats" || echo "no round was a plain one" >>"$tmp/out"
verdict generate_with_adaptive_k_equals_plain_byte_for_byte

run --policy exspec --sort-by-length --threads 1 --output - 2>"$tmp/log" | same_as_plain -
verdict generate_sorted_by_length_to_stdout

# A draft in another class, with fewer bits: other rounds, and the same tokens.
check_log run --fixed-k --draft-compute int8 --draft-weights q4 --output "$tmp/int8" \
    --stats "$tmp/stats" --verify
same_as_plain "$tmp/int8"
grep -q '"tokens_accepted": [1-9]' "$tmp/stats" || cat "$tmp/stats" >>"$tmp/out"
verdict generate_takes_a_draft_in_a_class_of_its_own

# The text as its own draft: other rounds again, and the same tokens.
pair="--target $demo/target"
check_log run --draft ngram --fixed-k --output "$tmp/ngram" --stats "$tmp/stats" --verify
same_as_plain "$tmp/ngram"
grep -q '"draft": "ngram"' "$tmp/stats" || cat "$tmp/stats" >>"$tmp/out"
verdict generate_takes_ngrams_for_a_draft

# A table of the prompts, and several drafts in turn, of which the model stops where it is not sure.
check_log $B/examples/ngram_table --model $demo/target --output "$tmp/table" $demo/prompts.jsonl
check_log run --draft "table:$tmp/table" --fixed-k --output "$tmp/ngram" --stats "$tmp/stats"
same_as_plain "$tmp/ngram"
grep -q '"tokens_drafted": [1-9]' "$tmp/stats" || cat "$tmp/stats" >>"$tmp/out"
check_log run --draft "table:$tmp/table" --draft ngram --draft $demo/draft --fixed-k \
    --draft-min-percent 30 --output "$tmp/ngram" --stats "$tmp/stats" --verify
same_as_plain "$tmp/ngram"
grep -q "\"draft\": \"table:$tmp/table,ngram,$demo/draft\"" "$tmp/stats" ||
    cat "$tmp/stats" >>"$tmp/out"
verdict generate_asks_several_drafts_in_turn
$B/examples/ngram_table --model $demo/target >"$tmp/log" 2>&1
[ $? -eq 2 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
$B/examples/ngram_table --model $demo/target --output no/such/table $demo/prompts.jsonl \
    >"$tmp/log" 2>&1
[ $? -eq 3 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
verdict ngram_table_says_why_it_fails
pair="--target $demo/target --draft $demo/draft"

# The options about memory reach the library: tokens are those of plain decoding with caches of this
# type, and the statistics say what all of it took.
check_log run --kv bf16 --cache-columns 1000 --grow-slots --prefix-bytes 1M --output "$tmp/small" \
    --stats "$tmp/stats" --verify
has '^equivalence 8/8$'
for part in target draft kv_reserved prefix kv_live_peak activation logits table; do
    grep -q "\"$part\": [0-9.]*[1-9]" "$tmp/stats" || echo "no $part in MiB" >>"$tmp/out"
    grep -q "\"${part}_bytes\": [1-9]" "$tmp/stats" || echo "no bytes of $part" >>"$tmp/out"
done
verdict generate_takes_options_about_memory_and_says_what_it_took

# The same prompts as token ids.
sed 's/.*"prompt_ids": \(\[[^]]*\]\).*/{"ids": \1}/' $demo/golden.jsonl | awk 'NR % 2' >"$tmp/ids"
check_log $generate $pair --prompts "$tmp/ids" --max-new 24 --logprobs --in-order \
    --compute f32 --output "$tmp/by_ids"
same_as_plain "$tmp/by_ids"
verdict generate_takes_ids

tiny=test/data/models/llama_untied_f32_sharded
if [ -d "$tiny" ]; then
    printf '{"ids": [1]}\n{"ids": [5, 6, 7]}\n{"ids": [3, 3]}\n' >"$tmp/ids"
    check_log $generate --target $tiny --draft $tiny.draft --prompts "$tmp/ids" --max-new 20 \
        --ignore-eos --verify --output "$tmp/tiny"
    has '^equivalence 3/3$'
    grep -q '"text"' "$tmp/tiny" && echo "there is text without a tokenizer" >>"$tmp/out"
    [ "$(grep -c '"finish":"length"' "$tmp/tiny")" -eq 3 ] || cat "$tmp/tiny" >>"$tmp/out"
    verdict generate_without_a_tokenizer
    check_log $generate --target $tiny --prompts "$tmp/ids" --score --top-logprobs 2 --in-order \
        --verify --output "$tmp/scores"
    has '^equivalence 3/3$'
    sed 's/-\{0,1\}[0-9]\{1,\}\.[0-9e-]*/F/g; s/\("perplexity":\)[0-9.e+]*/\1F/; s/FF/F/' \
        "$tmp/scores" >"$tmp/shown"
    common='"ids":[],"finish":"length","top_logprobs":[]'
    top='[[N,F],[N,F]]'
    cat >"$tmp/want" <<END
{"id":1,$common}
{"id":2,$common,"prompt_logprobs":[F,F],"prompt_top_logprobs":[$top,$top],"perplexity":F}
{"id":3,$common,"prompt_logprobs":[F],"prompt_top_logprobs":[$top],"perplexity":F}
END
    sed 's/\[[0-9]\{1,\},F\]/[N,F]/g' "$tmp/shown" | diff "$tmp/want" - >>"$tmp/out"
    verdict generate_scores_prompts
    echo '{"prompt": "text"}' >"$tmp/bad"
    $generate --target $tiny --prompts "$tmp/bad" >"$tmp/log" 2>&1
    [ $? -eq 2 ] || echo "the exit status is not 2" >>"$tmp/out"
    has ':1: .*no tokenizer'
    verdict generate_refuses_text_without_a_tokenizer
else
    echo "SKIP generate_without_a_tokenizer: no $tiny"
fi

# fails_with MESSAGE ARGUMENTS...: generate ends with status 2 and prints one line, which contains
# the message.
fails_with() {
    message=$1
    shift
    $generate "$@" >"$tmp/log" 2>&1
    status=$?
    [ $status -eq 2 ] || echo "the exit status is $status instead of 2" >>"$tmp/out"
    [ "$(wc -l <"$tmp/log")" -eq 1 ] || echo "it does not print one line" >>"$tmp/out"
    grep -qF -- "$message" "$tmp/log" || { echo "no: $message"; cat "$tmp/log"; } >>"$tmp/out"
}

# refuse NAME LINE MESSAGE: this line, the third of a file of prompts, is refused. The message
# begins with the file and the line's number, and no results are written.
refuse() {
    { head -n 2 $demo/prompts.jsonl; printf '%s\n' "$2"; } >"$tmp/bad"
    rm -f "$tmp/none"
    fails_with "$tmp/bad:3: $3" $pair --prompts "$tmp/bad" --max-new 8 --output "$tmp/none"
    [ -e "$tmp/none" ] && echo "the output file exists" >>"$tmp/out"
    verdict "generate_refuses_$1"
}
refuse a_line_that_is_not_json 'hello' 'not JSON'
refuse a_truncated_line '{"prompt": "x"' 'not JSON'
refuse a_line_without_prompt '{"id": "x"}' 'no prompt'
refuse an_unknown_field '{"prompt": "x", "max_tokens": 5}' 'unknown field "max_tokens"'
refuse a_field_that_is_there_twice '{"max_new": 1, "prompt": "x", "max_new": 2}' \
    '"max_new" is there twice'
refuse two_prompts_in_one_line '{"prompt": "x", "ids": [1]}' 'two of "prompt", "turns" and "ids"'
refuse an_id_of_no_use '{"prompt": "x", "id": null}' '"id" is neither a string nor a number'
refuse an_id_that_is_there_twice '{"prompt": "x", "id": 2}' 'id 2 is that of line 2 too'
refuse a_max_new_of_none '{"prompt": "x", "max_new": 0}' '"max_new" is not a number in 1..'
refuse a_draft_len_out_of_range '{"prompt": "x", "draft_len": 65}' \
    '"draft_len" is not a number in 0..64'
refuse a_flag_that_is_none '{"prompt": "x", "ignore_eos": 1}' \
    '"ignore_eos" is neither true nor false'
refuse a_max_new_of_its_own_that_does_not_fit '{"ids": [1], "max_new": 4096}' \
    'too long: 1 tokens and 4096'
refuse a_prompt_that_is_no_string '{"prompt": 5}' '"prompt" is not a string'
refuse an_empty_prompt '{"prompt": ""}' 'the prompt is empty'
refuse a_nul_in_the_text '{"prompt": "a\u0000b"}' 'a NUL character'
refuse a_bias_out_of_range '{"ids": [1], "bias": {"4096": 1}}' \
    'bias id 4096 is outside the vocabulary, 0..4095'
refuse turns_without_a_chat_format '{"turns": ["q"]}' '"turns", but the target has no chat template'
refuse an_id_out_of_range '{"ids": [1, 4096]}' 'token id 4096 is outside the vocabulary, 0..4095'
refuse a_negative_id '{"ids": [-1]}' '"ids" holds a number that is not a token id'
refuse an_id_that_is_no_integer '{"ids": [1.5]}' '"ids" holds something'
refuse no_ids '{"ids": []}' '"ids" is empty'
refuse turns_without_a_first '{"turns": []}' '"turns" is not an array with a first turn'
refuse a_prompt_too_long "{\"ids\": [$(yes 5, | head -n 4095 | tr -d '\n')5]}" \
    'too long: 4096 tokens and 8 new ones'

# Every field of a line that says what is wished is checked, and named.
while read -r field value message; do
    refuse "the_${field}_$value" "{\"prompt\": \"x\", \"$field\": $value}" "\"$field\" $message"
done <<'END'
min_new -1 is not a number in 0..2147483647
n 0 is not a number in 1..1024
best_of 1025 is not a number in 1..1024
priority -1001 is not a number in -1000..1000
deadline_ms 0.5 is not a number in 0..2147483647
top_logprobs 33 is not a number in 0..32
logprobs "yes" is neither true nor false
temperature -0.1 is not a number in 0..1000000000
seed 18446744073709551616 is not a number in 0..18446744073709551615
seed -1 is not a number in 0..
top_k "5" is not a number in 0..2147483647
top_p 1.01 is not a number in 0..1
typical_p -1 is not a number in 0..1
min_p 1e999 is not a number in 0..1
repeat_penalty null is not a number in 0..1000000000
presence_penalty 1e10 is not a number in -1000000000..1000000000
frequency_penalty true is not a number in -1000000000..1000000000
penalty_window 3073 is not a number in 0..3072
stop 5 is neither a string nor an array of up to 16 strings
stop ["a",""] has an empty string
stop_ids [-1] is not an array of up to 64 token ids
bias {"x":1} is not an object of up to 1024 token ids
bias {"1":"x"} is not an object of up to 1024 token ids
draft_sources [] is not an array of numbers in 0..31, one or more
draft_sources [32] is not an array of numbers in 0..31, one or more
END
# What does not fit together, or the target, the library finds.
disagree() {
    printf '{"ids": [1], %s}\n' "$2" >"$tmp/bad"
    $generate $pair --prompts "$tmp/bad" --max-new 8 >"$tmp/log" 2>&1
    [ $? -eq 3 ] && grep -q "line 1: .*$3" "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
    verdict "generate_refuses_$1"
}
disagree a_min_new_above_max_new '"min_new": 9' 'min_new is 9, outside 0..8'
disagree a_best_of_below_n '"n": 3, "best_of": 2' 'answers: best_of is 2, outside 3..1024'
disagree a_source_that_is_not_there '"draft_sources": [1]' 'draft_sources'

# What a checkpoint is and takes, by the options of a run that is planned.
check_log $generate --check $pair --batch 2 --max-len 1024
for line in 'container     model.safetensors' 'architecture  qwen3, 6 layers' \
    'vocabulary    4096 ids, with a tokenizer' 'weights       bf16, 1' 'class         specbatch ' \
    "pool .* for 2 rows of 1024 tokens, the draft's caches included" \
    'digest        [0-9a-f]\{32\}$'; do
    has "^$line"
done
rows() { sed -n 's/^pool  *\([0-9]*\).*/\1/p' "$tmp/log"; }
few=$(rows)
check_log $generate --check $pair --batch 8 --max-len 1024
[ "$(rows)" -gt "$few" ] || cat "$tmp/log" >>"$tmp/out"
verdict generate_says_what_a_checkpoint_is_and_takes
fails_with 'test/data/models/torch: no config.json there' --check --target test/data/models/torch
fails_with '--target is required' --check
verdict generate_says_that_a_checkpoint_does_not_run

# Where transformers is installed, it has to agree; elsewhere the program says that it is not.
if command -v "$PYTHON" >/dev/null 2>&1; then
    check_log $PYTHON examples/check_logits.py $demo/target --generate $generate
    has '^equal within the tolerance$\|^SKIP check_logits: '
    verdict check_logits_agrees_or_says_why_it_cannot
else
    echo "SKIP check_logits_agrees_or_says_why_it_cannot: no $PYTHON here"
fi

# refuse_usage NAME MESSAGE ARGUMENTS...: these arguments are refused.
refuse_usage() {
    name=$1
    shift
    fails_with "$@"
    verdict "generate_refuses_$name"
}
refuse_usage no_target '--target is required' --prompts x
refuse_usage an_unknown_option '--nothing' $pair --nothing
refuse_usage too_many_texts_to_stop_at '--stop is given more than 32 times' $pair \
    $(yes -- --stop=x | head -n 33)
refuse_usage a_batch_of_none '--batch: "0" is not a number in 1..4096' $pair --batch 0
refuse_usage an_unknown_policy '--policy: "best"' $pair --prompts "$tmp/prompts" --policy best
refuse_usage a_window_below_the_batch '--window: 2' $pair --prompts "$tmp/prompts" --batch 4 \
    --window 2
refuse_usage an_unknown_kv_type '--kv: "f8" is not one of auto|f32|bf16|f16' $pair --kv f8
refuse_usage caches_of_no_columns '--cache-columns: "0"' $pair --cache-columns 0
for bytes in x 1T 1KB -1 '' 17179869184G 99999999999999999999; do
    refuse_usage "prefix_bytes_of_'$bytes'" "--prefix-bytes: \"$bytes\" is not a number of bytes" \
        $pair "--prefix-bytes=$bytes"
done
refuse_usage a_checkpoint_that_is_not_there 'no/such' --target no/such --prompts "$tmp/prompts"
refuse_usage a_prompt_file_that_is_not_there 'no/such: cannot open' $pair --prompts no/such

# ------------------------------------------------------------------ lines of prompts

# A short request is finished first, and written then, unless the prompts' order is asked for.
printf '{"prompt": "Once upon a time", "max_new": 20}\n{"ids": [5, 6], "max_new": 1}\n' >"$tmp/two"
order() {
    $generate $pair --prompts "$tmp/two" "$@" 2>"$tmp/log" | sed 's/^{"id":\([0-9]*\),.*/\1/' |
        tr '\n' ' '
}
[ "$(order) $(order --in-order)" = "2 1  1 2 " ] || cat "$tmp/log" >"$tmp/out"
verdict generate_writes_results_as_they_finish_or_in_order

# A byte order mark, a blank line, lines that end as on Windows, and a last line without an end.
{
    printf '\357\273\277{"prompt": "a b", "id": "x\\u00e9\\"y", "max_new": 3}\r\n \r\n'
    printf '{"ids": [3], "id": 12.50, "logprobs": true, "max_new": 2, "ignore_eos": true}\r\n'
    printf '{"turns": ["q", "r"], "max_new": 1, "question_id": 8, "category": "", "reference": []}'
} >"$tmp/mixed"
check_log $generate $pair --chat raw --prompts "$tmp/mixed" --in-order --verify --output "$tmp/got"
has '^equivalence 3/3$'
sed 's/,"text":"[^"]*"//; s/-[0-9.e-]*/F/g; s/\[[0-9][0-9]*/[N/g; s/,[0-9][0-9]*/,N/g' "$tmp/got" \
    >"$tmp/shape"
printf '%s\n' '{"id":"xé\"y","ids":[N,N,N],"finish":"length"}' \
    '{"id":12.50,"ids":[N,N],"finish":"length","logprobs":[F,F]}' \
    '{"id":4,"ids":[N],"finish":"length"}' | diff - "$tmp/shape" >>"$tmp/out"
verdict generate_takes_the_settings_of_a_line_and_hands_its_id_back

# What the options can say of all lines, each line can say of itself: the same results.
wished="--temperature 0.8 --top-k 40 --top-p 0.95 --typical-p 0.9 --min-p 0.01 --seed 7 \
    --repeat-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.1 --penalty-window 20 \
    --n 2 --best-of 3 --min-new 3 --stop . --top-logprobs 2 --deadline-ms 1000000"
fields='"temperature": 0.8, "top_k": 40, "top_p": 0.95, "typical_p": 0.9, "min_p": 0.01,
    "seed": 7, "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.1,
    "penalty_window": 20, "n": 2, "best_of": 3, "min_new": 3, "stop": ".", "top_logprobs": 2,
    "deadline_ms": 1000000'
sed "s/}\$/, $(echo "$fields" | tr -d '\n')}/" "$tmp/prompts" >"$tmp/wished"
check_log run $wished --output "$tmp/by_options" --verify
has '^equivalence 16/16$'
check_log run --prompts "$tmp/wished" --stop never --n 1 --output "$tmp/by_lines"
cmp "$tmp/by_options" "$tmp/by_lines" >>"$tmp/out" 2>&1
verdict generate_takes_what_is_wished_from_lines_as_from_options

# Of the two that wait for the one row, that of higher priority comes first, though it is behind.
printf '{"ids": [5], "max_new": 3%s}\n' '' ', "priority": 9' >"$tmp/waiting"
$generate $pair --prompts "$tmp/waiting" --batch 1 2>"$tmp/log" | cut -c 1-7 >"$tmp/got"
printf '{"id":2\n{"id":1\n' | diff - "$tmp/got" >>"$tmp/out"
verdict generate_serves_higher_priorities_first

# What is banned is not there, what is favoured is the first token and ends the answer.
first=$(echo '{"ids": [5]}' | $generate $pair --prompts - --max-new 1 2>"$tmp/log" |
    sed 's/.*"ids":\[\([0-9]*\).*/\1/')
printf '{"ids": [5], "bias": {"7": 1e9}, "stop_ids": [7]}\n{"ids": [5], "bias": {"%s": null}}\n' \
    "$first" | $generate $pair --prompts - --max-new 2 --in-order >"$tmp/got" 2>"$tmp/log"
grep -q '^{"id":1,"ids":\[7\],.*"finish":"stop"' "$tmp/got" ||
    cat "$tmp/log" "$tmp/got" >>"$tmp/out"
grep -q '^{"id":2,' "$tmp/got" || cat "$tmp/log" >>"$tmp/out"
grep "^{\"id\":2,\"ids\":\[$first," "$tmp/got" >>"$tmp/out"
verdict generate_takes_biases_and_ids_that_end_answers

sed 's/}$/, "logprobs": false}/' "$tmp/prompts" >"$tmp/without"
check_log $generate $pair --prompts "$tmp/without" --max-new 4 --logprobs --output "$tmp/got"
[ "$(wc -l <"$tmp/got")" -eq 8 ] || cat "$tmp/got" >>"$tmp/out"
grep '"logprobs"' "$tmp/got" >>"$tmp/out"
verdict generate_takes_a_line_before_an_option

# drafted OPTION LINE: the number of proposals made when the option is --draft-len OPTION and every
# line has "draft_len": LINE.
drafted() {
    sed "s/}\$/, \"draft_len\": $2}/" "$tmp/prompts" >"$tmp/drafts"
    check_log $generate $pair --prompts "$tmp/drafts" --max-new 8 --fixed-k --draft-len "$1" \
        --stats "$tmp/stats" --output "$tmp/got"
    sed -n 's/.*"tokens_drafted": \([0-9]*\).*/\1/p' "$tmp/stats"
}
none=$(drafted 4 0)
some=$(drafted 0 2)
more=$(drafted 1 6)
[ "$none" -eq 0 ] && [ "$some" -gt 0 ] && [ "$more" -gt "$some" ] ||
    echo "drafted: $none, $some, $more" >>"$tmp/out"
verdict generate_takes_a_draft_len_below_or_above_the_option

check_log run --prompts - --output "$tmp/stdin" <"$tmp/prompts"
same_as_plain "$tmp/stdin"
verdict generate_reads_prompts_from_stdin
printf '{"prompt": "x"}\n{"prompt": 5}\n' >"$tmp/bad"
fails_with 'stdin:2: "prompt" is not a string' $pair --prompts - <"$tmp/bad"
verdict generate_names_stdin

# ------------------------------------------------------------------ files to be written

# early NAME MESSAGE ARGUMENTS...: refused before anyone sees that there is no such target.
early() {
    name=$1 early_message=$2
    shift 2
    fails_with "$early_message" --target no/such "$@"
    verdict "generate_finds_early_$name"
}
cp "$tmp/prompts" "$tmp/kept"
ln -s kept "$tmp/link"
same_file='cannot write: the prompts are read from this file'
echo '{"nothing": 1}' >"$tmp/bad"
early a_bad_line "$tmp/bad:1: unknown field" --prompts "$tmp/bad"
early a_full_disk '/dev/full: cannot write: No space left' --prompts "$tmp/prompts" \
    --output /dev/full
early a_full_disk_for_stats '/dev/full: cannot write: No space left' --prompts "$tmp/prompts" \
    --stats /dev/full
early a_folder_that_is_not_there 'no/such/file: cannot write' --prompts "$tmp/prompts" \
    --output no/such/file
early output_equal_to_prompts "$tmp/kept: $same_file" --prompts "$tmp/kept" --output "$tmp/kept"
early output_equal_to_prompts_by_a_link "$tmp/link: $same_file" --prompts "$tmp/kept" \
    --output "$tmp/link"
early output_equal_to_stdin "$tmp/kept: $same_file" --prompts - --output "$tmp/kept" <"$tmp/kept"
early stats_equal_to_prompts "$tmp/kept: $same_file" --prompts "$tmp/kept" --stats "$tmp/kept"
early stats_equal_to_output 'two outputs into one file' --prompts "$tmp/prompts" \
    --output "$tmp/same" --stats "$tmp/same"
early resumption_of_stdout '--output FILE' --prompts "$tmp/prompts" --resume
for trace in "$tmp/kept" /dev/full; do
    $B/examples/bench --target no/such --draft no/such --prompts "$tmp/kept" --trace "$trace" \
        >"$tmp/log" 2>&1
    [ $? -eq 2 ] || echo "the exit status is not 2" >>"$tmp/out"
    has "^bench: $trace: cannot write"
done
verdict bench_finds_early_a_trace_that_it_cannot_write
cmp "$tmp/prompts" "$tmp/kept" >"$tmp/out" 2>&1
[ -e "$tmp/same" ] && echo "an empty file is left" >>"$tmp/out"
verdict generate_leaves_files_alone_that_it_refuses

# A limit on the size of files stands for a disk with little room.
(
    trap '' XFSZ
    ulimit -f 8
    $generate --target no/such --prompts "$tmp/prompts" --output "$tmp/new" 2>&1
) | grep -q "$tmp/new: cannot write: File too large" || echo "it is not noticed" >"$tmp/out"
[ -e "$tmp/new" ] && echo "an empty file is left" >>"$tmp/out"
verdict generate_finds_early_a_disk_that_is_nearly_full

echo 'not mine' >"$tmp/old"
fails_with 'too long' $pair --prompts "$tmp/prompts" --max-new 4096 --output "$tmp/old" \
    --stats "$tmp/new"
[ "$(cat "$tmp/old")" = 'not mine' ] || echo "the old file is gone" >>"$tmp/out"
[ -e "$tmp/new" ] && echo "an empty file is left" >>"$tmp/out"
verdict generate_writes_nothing_when_a_prompt_is_too_long

# A pipe whose reader has gone after the first line.
(
    trap '' PIPE
    run --batch 1 2>"$tmp/log"
    echo $? >"$tmp/code"
) | head -n 1 >"$tmp/got"
[ "$(cat "$tmp/code")" -eq 3 ] || cat "$tmp/code" >"$tmp/out"
has 'stdout: cannot write: Broken pipe'
has ': [1-7] of 8 are done$'
verdict generate_stops_when_it_cannot_write

# full NAME STATUS COMMAND...: it prints on a full disk, says so in one line, and fails.
full() {
    name=$1 wanted=$2
    shift 2
    "$@" >/dev/full 2>"$tmp/log"
    status=$?
    [ $status -eq "$wanted" ] || echo "the exit status is $status instead of $wanted" >>"$tmp/out"
    [ "$(wc -l <"$tmp/log")" -eq 1 ] || echo "it does not print one line" >>"$tmp/out"
    has 'stdout: .*No space left'
    verdict "${name}_notices_a_full_disk"
}
full generate_results 2 $generate --target no/such --prompts "$tmp/two"
full generate_summary 3 $generate $pair --prompts "$tmp/two" --output "$tmp/got"
full generate_help 3 $generate --help
full bench 3 $B/examples/bench $pair --prompts "$tmp/two" --max-new 1 --batches 1
full demo 3 $B/examples/demo $demo
full minimal 1 $B/examples/minimal $demo/target $demo/draft x
full cancel 1 $B/examples/cancel $demo/target $demo/draft 4 x
full stream 1 $B/examples/stream $demo/target ragged name x

# ------------------------------------------------------------------ interruption and resumption

# Two requests are short, six would take a minute. The signal comes when the short ones are there.
awk '{
    sub(/}$/, NR == 2 || NR == 5 ? ", \"max_new\": 3}" : ", \"max_new\": N, \"ignore_eos\": true}")
    print
}' "$tmp/prompts" >"$tmp/form"
sed 's/: N,/: 3500,/' "$tmp/form" >"$tmp/long"
sed 's/: N,/: 20,/' "$tmp/form" >"$tmp/short"

# wait_for_lines N FILE PID: waits until the file has N lines, or the process has ended.
wait_for_lines() {
    while kill -0 "$3" 2>/dev/null && [ "$(wc -l <"$2")" -lt "$1" ]; do sleep 0.1; done
}
# ends_with STATUS SIGNAL PID: sends the signal, after which the process ends with the status.
ends_with() {
    kill -"$2" "$3"
    wait "$3"
    status=$?
    [ $status -eq "$1" ] || echo "the exit status is $status instead of $1" >>"$tmp/out"
}
# interrupt STATUS SIGNAL
interrupt() {
    : >"$tmp/part"
    $generate $pair --prompts "$tmp/long" --output "$tmp/part" --stats "$tmp/new" 2>"$tmp/log" &
    pid=$!
    wait_for_lines 2 "$tmp/part" $pid
    ends_with "$1" "$2" $pid
    echo "generate: SIG$2: 2 of 8 are done; the same command with --resume does the others" |
        diff - "$tmp/log" >>"$tmp/out"
    [ "$(sed 's/^{"id":\([25]\),.*}$/\1/' "$tmp/part" | sort | tr '\n' ' ')" = "2 5 " ] ||
        cat "$tmp/part" >>"$tmp/out"
    [ -e "$tmp/new" ] && echo "there are statistics of a part" >>"$tmp/out"
    verdict "generate_ends_well_by_SIG$2"
}
interrupt 143 TERM
interrupt 130 INT

# The long requests are made short here, so that doing them takes a second.
check_log $generate $pair --prompts "$tmp/short" --output "$tmp/whole"
check_log $generate $pair --prompts "$tmp/short" --output "$tmp/part" --resume
has ': 6 requests'
sort "$tmp/whole" >"$tmp/want"
sort "$tmp/part" | cmp "$tmp/want" - >>"$tmp/out" 2>&1
[ "$(wc -l <"$tmp/part")" -eq 8 ] || cat "$tmp/part" >>"$tmp/out"
verdict generate_resumes_an_interrupted_run

# resumed NAME FILE: --resume makes of the file that of an uninterrupted run, byte for byte.
resumed() {
    check_log run --resume --output "$2"
    same_as_plain "$2"
    verdict "generate_resumes_$1"
}
head -c $(($(head -n 4 "$tmp/plain" | wc -c) - 1)) "$tmp/plain" >"$tmp/torn"
resumed a_file_whose_last_line_is_torn "$tmp/torn"
: >"$tmp/empty"
resumed an_empty_file "$tmp/empty"
resumed a_file_that_is_not_there "$tmp/fresh"
resumed a_complete_file "$tmp/fresh"
has '^generate: all 8 are done$'
verdict generate_says_that_nothing_is_left
printf '{"id":9,"ids' >>"$tmp/fresh"
resumed a_complete_file_with_a_torn_line_behind "$tmp/fresh"

# others LINE FILE ARGUMENTS...: --resume finds that others made this line, which is the last one
# that did not end early, and leaves the file as it is.
others() {
    line=$1
    cp "$2" "$tmp/before"
    cp "$2" "$tmp/part"
    shift 2
    fails_with "$tmp/part:$line: these models, options and prompts make another result" $pair \
        --max-new 24 --logprobs --resume --output "$tmp/part" "$@"
    cmp "$tmp/before" "$tmp/part" >>"$tmp/out" 2>&1
}
head -n 4 "$tmp/plain" >"$tmp/four"
sed '4s/"finish":"[a-z]*"/"finish":"deadline"/' "$tmp/four" >"$tmp/late"
sed '4s/"prompt": "/&The /' "$tmp/prompts" >"$tmp/changed"
others 4 "$tmp/four" --prompts "$tmp/prompts" --compute bf16
others 4 "$tmp/four" --prompts "$tmp/prompts" --compute f32 --temperature 1
others 4 "$tmp/four" --prompts "$tmp/changed" --compute f32
others 3 "$tmp/late" --prompts "$tmp/prompts" --compute bf16
verdict generate_resumes_no_file_that_others_made
check_log run --resume --output "$tmp/late"
cmp "$tmp/late" "$tmp/plain" | grep -q ', line 4$' || cat "$tmp/log" >>"$tmp/out"
verdict generate_resumes_a_file_whose_last_result_ended_early
# What was done in time is made again without a deadline.
check_log run --resume --deadline-ms 1 --output "$tmp/four"
[ "$(tail -n 4 "$tmp/four" | grep -c '"finish":"deadline"')" -eq 4 ] || cat "$tmp/log" >>"$tmp/out"
verdict generate_resumes_under_a_deadline

# unfit NAME MESSAGE LINE: a file that has this third line is refused and left as it is.
unfit() {
    { head -n 2 "$tmp/plain"; printf '%s\n' "$3"; } >"$tmp/odd"
    cp "$tmp/odd" "$tmp/odd_before"
    fails_with "$tmp/odd:3: $2" $pair --prompts "$tmp/prompts" --resume --output "$tmp/odd"
    cmp "$tmp/odd_before" "$tmp/odd" >>"$tmp/out" 2>&1
    verdict "generate_resumes_no_file_with_$1"
}
unfit a_line_without_id 'not a result with an id' '{"ids":[1,2],"finish":"eos"}'
unfit a_line_that_is_no_result 'not a result with an id' 'hello'
unfit a_result_of_no_prompt 'no prompt has the id 99' '{"id":99,"ids":[1]}'
unfit a_result_of_another_kind_of_id 'no prompt has the id "3"' '{"id":"3","ids":[1]}'
unfit a_result_twice 'a second result of 2' '{"id":2,"ids":[1]}'

# begun NAME MESSAGE COMMAND...: the signal comes when the first line has been printed; the message
# is the last one.
begun() {
    name=$1 message=$2
    shift 2
    : >"$tmp/log"
    "$@" >"$tmp/log" 2>&1 &
    pid=$!
    wait_for_lines 1 "$tmp/log" $pid
    ends_with 130 INT $pid
    [ "$(tail -n 1 "$tmp/log")" = "$message" ] || cat "$tmp/log" >>"$tmp/out"
    verdict "${name}_ends_well_by_SIGINT"
}
begun bench 'bench: SIGINT: not all settings were measured' $B/examples/bench $pair \
    --prompts "$tmp/long" --trace "$tmp/trace"
[ "$(tail -n 1 "$tmp/trace")" = ']}' ] || tail -n 2 "$tmp/trace" >"$tmp/out"
verdict bench_ends_its_trace_by_SIGINT
begun demo 'demo: SIGINT: not all policies were run' $B/examples/demo $demo

# ------------------------------------------------------------------ terminals and help

# `script` gives a program a terminal. Where the results go to it, no progress is shown.
on_terminal() {
    script -qec "$generate $pair --prompts $tmp/two $*" /dev/null </dev/null |
        tr -s '\r\n' '\n\n' >"$tmp/log"
}
if command -v script >/dev/null 2>&1; then
    on_terminal
    grep '^\[' "$tmp/log" >>"$tmp/out"
    [ "$(grep -c '^{"id":[12],.*}$' "$tmp/log")" -eq 2 ] || cat "$tmp/log" >>"$tmp/out"
    on_terminal --output "$tmp/file"
    has '^\[#*\] 2/2 '
    has '^ragged: 2 requests'
    verdict generate_keeps_progress_and_results_apart
else
    echo "SKIP generate_keeps_progress_and_results_apart: no script here, which makes terminals"
fi

for program in generate bench demo stream quantize ngram_table; do
    for option in -h --help; do
        check_log $B/examples/$program $option
        has "$program "
    done
    check_log $B/examples/$program --version
    has "^$program (libspecbatch [0-9]*\.[0-9]*\.[0-9]*)\$"
    $B/examples/$program --nothing >"$tmp/log" 2>&1
    [ $? -eq 2 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
    verdict "${program}_helps"
done

# The place of a word among those of --chat is the number of the format.
sed -n '/<</d; s/^ *SPECBATCH_CHAT_\([A-Z0-9_]*\) = [0-9].*/\1/p' include/specbatch.h |
    tr 'A-Z' 'a-z' >"$tmp/want"
for program in generate chat; do
    $B/examples/$program --help | sed -n 's/^  --chat *\([^ ]*\).*/\1/p' | tr '|.-' '\n__' |
        diff "$tmp/want" -
done >"$tmp/out"
[ "$(wc -l <"$tmp/want")" -gt 2 ] || echo "no formats in the header" >>"$tmp/out"
verdict programs_have_the_chat_formats_in_order

# ------------------------------------------------------------------ the other programs

# A checkpoint that was converted gives the results of its folder; in 4 bits it is a third of that.
check_log $B/examples/quantize $demo/target "$tmp/target.gguf"
check_log run --target "$tmp/target.gguf" --policy plain --batch 1 --output "$tmp/converted"
same_as_plain "$tmp/converted"
check_log $B/examples/quantize --weights q4 $demo/target "$tmp/q4.gguf"
[ "$(wc -c <"$tmp/q4.gguf")" -lt $(($(wc -c <"$tmp/target.gguf") * 2 / 5)) ] ||
    ls -l "$tmp/q4.gguf" "$tmp/target.gguf" >>"$tmp/out"
verdict quantize_converts_a_checkpoint
check_log $B/examples/quantize --weights q4 "$tmp/target.gguf" "$tmp/same.gguf"
cmp "$tmp/q4.gguf" "$tmp/same.gguf" >>"$tmp/out" 2>&1
$B/examples/quantize --weights q8 "$tmp/q4.gguf" "$tmp/same.gguf" >"$tmp/log" 2>&1
[ $? -eq 3 ] || echo "4 bits were quantised again" >>"$tmp/out"
has 'is Q8_0 already, and to quantise it again would lose more'
verdict quantize_converts_a_gguf_file
rm "$tmp/q4.gguf" "$tmp/same.gguf"
mkdir "$tmp/folder"
cp $demo/target/*.json "$tmp/folder"
check_log $B/examples/quantize $demo/target "$tmp/folder/model.safetensors"
digest() { $generate --check --target "$1" 2>>"$tmp/out" | sed -n 's/^digest  *//p'; }
[ "$(digest "$tmp/folder")" = "$(digest $demo/target)" ] || echo "another model" >>"$tmp/out"
rm -r "$tmp/folder"
verdict quantize_writes_safetensors_too
$B/examples/quantize $demo/target >"$tmp/log" 2>&1
[ $? -eq 2 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
$B/examples/quantize no/such "$tmp/q4.gguf" >"$tmp/log" 2>&1
[ $? -eq 3 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] && [ ! -e "$tmp/q4.gguf" ] ||
    cat "$tmp/log" >>"$tmp/out"
verdict quantize_says_why_it_fails

check_log $B/examples/bench $pair --prompts "$tmp/prompts" --limit 3 --max-new 8 \
    --batches 1,2 --draft-lens 2 --adaptive --trace "$tmp/trace"
[ "$(grep -c ' 3/3$' "$tmp/log")" -eq 8 ] || cat "$tmp/log" >>"$tmp/out"
[ "$(sed '1,/^again, in turn/d' "$tmp/log" | grep -c '^[a-z]* *[12] ')" -eq 3 ] ||
    echo "the three fastest did not run again" >>"$tmp/out"
grep -q '^fastest: --policy ' "$tmp/log" || echo "it recommends nothing" >>"$tmp/out"
grep -q '"name": "verify"' "$tmp/trace" || echo "the trace has no verification" >>"$tmp/out"
verdict bench_compares_and_recommends
# It runs what lines and options wish for, as generate does, but for what a clock ends.
sed 's/"deadline_ms": 1000000/"logprobs": true/' "$tmp/wished" >"$tmp/timeless"
check_log $B/examples/bench $pair --draft ngram --prompts "$tmp/timeless" --limit 2 --max-new 8 \
    --policies ragged --batches 2 --draft-lens 2 --draft-min-percent 20 --ignore-eos
has ' 4/4$'
$B/examples/bench $pair --prompts "$tmp/wished" --policies plain,none >"$tmp/log" 2>&1
[ $? -eq 2 ] || echo "the exit status is not 2" >>"$tmp/out"
has 'no policy is called "none"; there are ragged, plain, eqspec, exspec, rollback$'
$B/examples/bench $pair --prompts "$tmp/wished" >"$tmp/log" 2>&1
[ $? -eq 2 ] || echo "the exit status is not 2" >>"$tmp/out"
has 'wished:1: "deadline_ms": runs with deadlines cannot be compared$'
verdict bench_takes_what_is_wished

# Whatever the model would write, the answers are JSON: one document for each prompt, which may have
# newlines in it.
json_of() { $B/examples/json_mask $demo/target $demo/draft "$@" >"$tmp/json" 2>"$tmp/log"; }
json_of "Once upon a time" "Question: How many?" "It was" || cat "$tmp/log" >>"$tmp/out"
grep -q '^ *{' "$tmp/json" || cat "$tmp/json" >>"$tmp/out"
if command -v "$PYTHON" >/dev/null 2>&1; then
    $PYTHON -c '
import json, sys
text, n = sys.stdin.read(), 0
while text.strip():
    value, end = json.JSONDecoder().raw_decode(text.lstrip())
    text, n = text.lstrip()[end:], n + isinstance(value, dict)
assert n == 3, n' <"$tmp/json" 2>>"$tmp/out" || cat "$tmp/json" >>"$tmp/out"
fi
$B/examples/json_mask no/such $demo/draft x >"$tmp/log" 2>&1
[ $? -eq 1 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
verdict json_mask_prints_json

check_log $B/examples/minimal $demo/target $demo/draft "Once upon a time" "Question: How many?"
[ "$(grep -c 'target passes' "$tmp/log")" -eq 2 ] || cat "$tmp/log" >>"$tmp/out"
verdict minimal_c_generates

if [ -n "$SAN" ]; then
    echo "SKIP minimal_py: a sanitized library cannot be loaded into an ordinary python"
elif ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "SKIP minimal_py: no $PYTHON here"
else
    PYTHONDONTWRITEBYTECODE=1 $PYTHON examples/minimal.py "$B/libspecbatch.so" $demo/target \
        $demo/draft "Once upon a time" "Question: How many?" >"$tmp/py" 2>&1 ||
        cat "$tmp/py" >"$tmp/out"
    # The two programs print the same texts, and different lines beside them. Which text comes first
    # is a matter of timing.
    grep -v 'target passes' "$tmp/log" | sed 's/^\[[0-9]*\]//' | sort >"$tmp/texts_c"
    grep -v 'passes of the target' "$tmp/py" | sort | diff "$tmp/texts_c" - >>"$tmp/out" 2>&1
    verdict minimal_py_gives_the_texts_of_minimal_c
fi

check_log $B/examples/cancel $demo/target $demo/draft 8 "Once upon a time"
has '^    [89] tokens, cancelled$\|^    1[0-9] tokens, cancelled$'
$B/examples/cancel $demo/target $demo/draft 0 x >"$tmp/log" 2>&1
[ $? -eq 2 ] && [ "$(wc -l <"$tmp/log")" -eq 1 ] || cat "$tmp/log" >>"$tmp/out"
verdict cancel_c_ends_an_answer
