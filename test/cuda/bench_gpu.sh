#!/bin/sh
# Decoding on a GPU, shape-true random checkpoints: `make bench-gpu`. CHECKPOINTS says where they are kept (50 GB for
# all of them; they are made once), PAIRS which to run, GBPS the device's copy bandwidth for the roofline, PYTHON an
# interpreter that has Transformers, for its plain decoding of the same checkpoints.
root=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-build/cpu}
cd "$root" || exit 1
dir=${CHECKPOINTS:-build/gpu/checkpoints}
. test/cuda/gpu.sh
gpu_missing bench-gpu && exit 1
. test/bench/shapes.sh
for name in ${PAIRS:-qwen3 vicuna glm4}; do
    pair=$(pair_of "$name") || exit 1
    for model in $pair; do
        checkpoint "$B/test/bench/make_checkpoint" "$dir/$model" "$model" || exit 1
    done
    for accept in 0.6 0.8; do
        echo "== ${pair% *} with ${pair#* }"
        "$B/test/bench/bench_gpu" "$dir/${pair% *}" --draft "$dir/${pair#* }" --accept "$accept" \
            --gbps "${GBPS:-3000}" --module "$root/$B/libspecbatch_cuda.so" || exit 1
    done
    "${PYTHON:-python3}" test/cuda/bench_hf.py "$dir/${pair% *}"
    case $? in 0 | 77) ;; *) exit 1 ;; esac
done
