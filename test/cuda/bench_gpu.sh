#!/bin/sh
# Decoding on a GPU, shape-true random checkpoints: `make bench-gpu`. CHECKPOINTS says where they are kept (50 GB for
# all of them; they are made once), PAIRS which to run, GBPS the device's copy bandwidth for the roofline.
root=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-build/cpu}
cd "$root" || exit 1
dir=${CHECKPOINTS:-build/gpu/checkpoints}
if [ ! -e "$B/libspecbatch_cuda.so" ]; then
    echo "FAIL bench-gpu: no CUDA module in this build (is nvcc there? make CUDA=1)"
    exit 1
fi
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "FAIL bench-gpu: no GPU on this machine (nvidia-smi -L finds none)"
    exit 1
fi
mkdir -p "$dir"
# checkpoint NAME OPTIONS...
checkpoint() {
    name=$1
    shift
    [ -e "$dir/$name/config.json" ] || "$B/test/bench/make_checkpoint" "$dir/$name" --context 4096 --dtype bf16 "$@"
}
# pair TARGET DRAFT
pair() {
    for accept in 0.6 0.8; do
        echo "== $1 with $2"
        "$B/test/bench/bench_gpu" "$dir/$1" --draft "$dir/$2" --accept "$accept" --gbps "${GBPS:-3000}" \
            --module "$root/$B/libspecbatch_cuda.so" || exit 1
    done
}
for p in ${PAIRS:-qwen3 vicuna glm4}; do
    case $p in
    qwen3)
        checkpoint qwen3-8b --arch qwen3 --hidden 4096 --inter 12288 --layers 36 --heads 32 --kv-heads 8 \
            --head-dim 128 --vocab 151936
        checkpoint qwen3-0.6b --arch qwen3 --hidden 1024 --inter 3072 --layers 28 --heads 16 --kv-heads 8 \
            --head-dim 128 --vocab 151936 --tied
        pair qwen3-8b qwen3-0.6b ;;
    vicuna)
        checkpoint vicuna-7b --arch llama --hidden 4096 --inter 11008 --layers 32 --heads 32 --kv-heads 32 \
            --head-dim 128 --vocab 32000
        checkpoint llama-68m --arch llama --hidden 768 --inter 3072 --layers 2 --heads 12 --kv-heads 12 \
            --head-dim 64 --vocab 32000
        pair vicuna-7b llama-68m ;;
    glm4)
        checkpoint glm4-9b --arch glm4 --hidden 4096 --inter 13696 --layers 40 --heads 32 --kv-heads 2 \
            --head-dim 128 --vocab 151552
        checkpoint glm4-0.5b --arch glm4 --hidden 896 --inter 4864 --layers 24 --heads 14 --kv-heads 2 \
            --head-dim 64 --vocab 151552 --tied
        pair glm4-9b glm4-0.5b ;;
    *) echo "bench-gpu: PAIRS knows qwen3, vicuna and glm4, not $p"; exit 1 ;;
    esac
done
