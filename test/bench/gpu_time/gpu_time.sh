#!/bin/sh
# Counts what rounds of the paper's three pairs do (gpu_time.c) and prints times by the model
# (gpu_time.py). `make gpu-time` runs it.
#
#   gpu_time.sh [--pairs qwen3,vicuna,glm4] [--batches 1,4,8,16,32] [--out DIR]
#               [--measured FILE] [--compare DIR]
#
# Traces go to DIR (build/gpu-time), two for each pair: of models with one layer and with two, as
# all layers are alike; and two more of batches of 3 and more, whose verification has products that
# wgmma may make, with these. The checkpoints are sparse files and are removed. FILE has lines of E7
# (test/cuda/run_on_gpu.sh: results.txt), which are printed beside the model's; the other DIR has
# traces of another state of the code, whose times are printed too.
set -e
here=$(dirname "$0")
. "$here/../shapes.sh"
B=${B:-build/cpu} pairs=qwen3,vicuna,glm4 batches= out=build/gpu-time more=
while [ $# -gt 1 ]; do
    case $1 in
    --pairs) pairs=$2 ;;
    --batches) batches=$2 ;;
    --out) out=$2 ;;
    --measured | --compare) more="$more $1 $2" ;;
    *) echo "gpu_time.sh: what is $1?" >&2 && exit 2 ;;
    esac
    shift 2
done

# make_model NAME LAYERS: writes the checkpoint and prints the model's line of the trace.
make_model() (
    model=$1 layers=$2
    set -- $(shape_of "$model")
    rm -rf "$out/$model"
    "$B/test/bench/make_checkpoint" "$out/$model" --arch "$1" --hidden "$2" --inter "$3" \
        --layers "$layers" --heads "$5" --kv-heads "$6" --head-dim "$7" --vocab "$8" \
        --context 4096 --dtype bf16 $9 --sparse >/dev/null
    printf '{"model": "%s", "hidden": %d, "inter": %d, "layers": %d, "heads": %d, ' \
        "$model" "$2" "$3" "$4" "$5"
    printf '"kv_heads": %d, "head_dim": %d, "vocab": %d}\n' "$6" "$7" "$8"
)

mkdir -p "$out"
for pair in $(echo "$pairs" | tr , ' '); do
    for layers in 1 2; do
        set -- $(pair_of "$pair")
        normal=1,8,32 trace=$out/$pair-$layers.json
        [ "$pair" = qwen3 ] && normal=1,4,8,16,32
        { make_model "$1" $layers && make_model "$2" $layers; } >"$trace.part"
        "$B/cudasim/gpu_time" "$out/$1" "$out/$2" --batches "${batches:-$normal}" >>"$trace.part"
        many=$(echo "${batches:-$normal}" | tr , '\n' | awk '$1 > 2' | paste -sd , -)
        rm -f "$out/$pair-$layers-wgmma.json"
        [ -z "$many" ] || "$B/cudasim/gpu_time" "$out/$1" "$out/$2" --batches "$many" \
            --wgmma "$out/plans" >"$out/$pair-$layers-wgmma.json"
        rm -rf "${out:?}/$1" "${out:?}/$2"
        mv "$trace.part" "$trace"
    done
done
exec "${PYTHON:-python3}" "$here/gpu_time.py" "$out" $more
