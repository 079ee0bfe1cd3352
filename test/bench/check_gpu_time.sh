#!/bin/sh
# The model of time (test/bench/gpu_time) counts rounds of two small models and makes times of them.
# What it counts of weights must be their sizes, which are known.
. "$(dirname "$0")/../lib.sh"
if [ ! -x "$B/cudasim/gpu_time" ]; then
    echo "SKIP gpu_time: not built (a sanitized build has none)"
    exit
fi
models=$tmp/out.d
mkdir "$models"
for layers in 1 2; do
    trace=$models/small-$layers.json
    for model in target draft; do
        rm -rf "$tmp/$model"
        "$B/test/bench/make_checkpoint" "$tmp/$model" --arch qwen3 --hidden 256 --inter 768 \
            --layers $layers --heads 4 --kv-heads 2 --head-dim 64 --vocab 1024 --context 512 \
            --dtype bf16 --sparse >/dev/null || verdict gpu_time "no checkpoint"
        echo "{\"model\": \"$model\", \"hidden\": 256, \"inter\": 768, \"layers\": 4," \
            "\"heads\": 4, \"kv_heads\": 2, \"head_dim\": 64, \"vocab\": 1024}"
    done >"$trace"
    "$B/cudasim/gpu_time" "$tmp/target" "$tmp/draft" --batches 1,3 --context 64 >>"$trace" \
        2>"$tmp/log" || cat "$tmp/log" >>"$tmp/out"
done
echo "E7 target norm: us  m=1 5.0  m=6 5.5" >"$tmp/measured"
"$PYTHON" test/bench/gpu_time/gpu_time.py "$models" --check --measured "$tmp/measured" \
    >"$tmp/table" 2>>"$tmp/out" || indented "$tmp/table" >>"$tmp/out"
grep -q '^| 3 | ' "$tmp/table" || echo "no row for batch 3" >>"$tmp/out"
grep -q '^target norm m=6: model .*, measured 5.5' "$tmp/table" ||
    echo "no line beside what was measured" >>"$tmp/out"
verdict gpu_time_counts_and_estimates
"$B/cudasim/gpu_time" "$tmp/target" "$tmp/draft" --batch 1 2>"$tmp/log"
grep -q '^--batch: no such option$' "$tmp/log" || echo "--batch is taken" >"$tmp/out"
verdict gpu_time_refuses_an_unknown_option
[ $failed -eq 0 ]
