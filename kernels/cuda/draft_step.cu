/*
 * Steps of a draft as one kernel: all layers of up to eight steps, for at most 16 tokens a step.
 *
 * A step of a small model is 280 launches, most of which take less time to run than to begin and to
 * end. Here one launch has a block on every multiprocessor, and barriers over the grid take the
 * place of launches:
 *
 *     embed |                                                          x f32
 *     layer: norm, qkv | attention | x += o | norm, gate_up, gate | x += down |        5 barriers
 *     norm, head, largest logit | ids |
 *
 * Every block normalises all rows for itself, into shared memory, rather than wait for one that
 * does. An output column of o and down belongs to one block, which adds it to x.
 *
 * Weights. The memory never waits for a barrier. The tiles of all matrices, in the order in which
 * they are used, are dealt to the blocks in turn, through layers and steps:
 *
 *     tile   0 1 2 ...  of qkv, layer 0 | of o | of gate_up | of down | of qkv, layer 1 | ...
 *     block  0 1 2 ... G-1 0 1 2 ...                    and on, without beginning anew at block 0
 *
 * So a warp knows what it will need however far ahead, and its ring (draft_tile.cuh) fills while
 * the block waits for others: 112 KB a multiprocessor, about two phases of a model of 0.6 billion
 * weights. As dealing never begins anew, every block reads the same share, though a phase may have
 * fewer tiles than there are blocks.
 *
 * Results are those of the single operations but for the order of additions and queries that are
 * not rounded. They do not depend on the number of blocks or on the other rows.
 *
 * Rejected: a kernel for each layer, whose 28 launches wait as long as the barriers; norms of sums
 * that the block before has made, which need the scale of a row before the row is complete.
 */
#include "kernels/cuda/draft_attend.cuh"
#include "kernels/cuda/grid.cuh"

namespace
{

enum {
    STAGES = 8, /* of a warp's ring */
    MOST_TOKENS = 16,
    KEPT = 32 /* elements of a row that a lane keeps while it is normed */
};

enum { QKV, O, GATE_UP, DOWN, MATRICES };

struct step_layer {
    panels w[MATRICES];
    const float *bias[MATRICES]; /* or NULL */
    const float *attn_norm, *ffn_norm;
    attend_layer attention;
};

/* Arrays of the device that the blocks share, in the memory that step_prepare was given. */
struct step_memory {
    unsigned barrier;
    unsigned room;
    wide best[MOST_TOKENS]; /* largest logit and its id, zero between steps (see key_of) */
};

struct step_args {
    const step_layer *layers;
    step_memory *shared;
    panels embed, head; /* head.n_out: ids that may be proposed */
    const float *final_norm;
    float *x, *qkv;
    uint16_t *attended, *act;
    int32_t *ids;
    attend_shape attention;
    float eps;
    int n_layers, hidden, inter, vocab, n_steps;
    one_step steps[SB_DRAFT_STEPS_MAX];
};

/* ------------------------------------------------------------------ weights */

/* All stages of a warp, in the order in which it multiplies them. */
struct stream_source {
    const step_layer *layers;
    panels head, now;
    int n_layers, steps_left; /* with the present one */
    int layer, matrix, tile, stage;

    __device__ __forceinline__ void begin(const step_args &a)
    {
        layers = a.layers;
        head = a.head;
        n_layers = a.n_layers;
        steps_left = a.n_steps;
        layer = matrix = 0;
        tile = (int)blockIdx.x;
        stage = (int)threadIdx.x / 32;
        now = layers[0].w[QKV];
    }
    __device__ __forceinline__ void next_matrix()
    {
        tile -= now.tiles();
        if (layer < n_layers && ++matrix == MATRICES)
            matrix = 0, layer++;
        else if (layer == n_layers && steps_left-- > 0)
            layer = 0;
        now = layer < n_layers ? layers[layer].w[matrix] : head;
    }
    __device__ __forceinline__ void next(shared_at to)
    {
        while (steps_left > 0) {
            if (tile >= now.tiles()) {
                next_matrix();
            } else if (stage < now.stages()) {
                now.fetch(to, tile, stage);
                stage += WARPS;
                return;
            } else {
                tile += (int)gridDim.x;
                stage = (int)threadIdx.x / 32;
            }
        }
    }
};

/* ------------------------------------------------------------------ norm */

/* Normed rows in shared memory. A row ends in 16 bytes of nothing, so that neighbouring rows lie in
 * other banks. */
struct normed_inputs {
    const uint8_t *h;
    int pitch;

    static __host__ __device__ __forceinline__ int pitch_of(int64_t ld)
    {
        return (int)ld * 2 + 16;
    }
    __device__ __forceinline__ uint4 load(int row, int k) const
    {
        return *(const uint4 *)(h + row * pitch + k * 2);
    }
};

/* One row, by a warp; x is NULL for a row of zeros. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void norm_row(uint16_t *h, const float *x, const float *weight, int n,
                                         int64_t ld, float eps)
{
    const int lane = threadIdx.x % 32;
    float kept[KEPT], sum = 0.0f;

#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        kept[i] = x && lane + 32 * i < n ? __ldcg(x + lane + 32 * i) : 0.0f;
        sum = fmaf(kept[i], kept[i], sum);
    }
    for (int k = lane + 32 * KEPT; x && k < n; k += 32)
        sum = fmaf(__ldcg(x + k), __ldcg(x + k), sum);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(SB_FULL_WARP, sum, step);
    const float scale = 1.0f / sqrtf(sum / (float)n + eps);
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        const int k = lane + 32 * i;
        if (k < ld)
            h[k] = (uint16_t)pack2<TYPE>(k < n ? kept[i] * scale * weight[k] : 0.0f, 0.0f);
    }
    for (int k = lane + 32 * KEPT; k < ld; k += 32)
        h[k] = (uint16_t)pack2<TYPE>(x && k < n ? __ldcg(x + k) * scale * weight[k] : 0.0f, 0.0f);
}

/* Rows 0 .. 8 NT - 1: row i is that of token index[i], or i; zeros from m on. */
template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ normed_inputs norm_rows(uint8_t *memory, const step_args &a,
                                                   const float *weight, const int32_t *index, int m)
{
    const int64_t ld = a.head.ld;
    const normed_inputs inputs = {memory, normed_inputs::pitch_of(ld)};

    __syncthreads(); /* what was in this memory has been read */
    for (int i = (int)threadIdx.x / 32; i < 8 * NT; i += WARPS) {
        const int64_t row = i < m && index ? index[i] : i;
        norm_row<TYPE>((uint16_t *)(memory + i * inputs.pitch), i < m ? a.x + row * a.hidden : NULL,
                       weight, a.hidden, ld, a.eps);
    }
    __syncthreads();
    return inputs;
}

/* ------------------------------------------------------------------ products */

/* What a block has while it runs. */
template <int NT>
struct running_block {
    stage_ring<STAGES, stream_source> ring;
    float *sums;
    uint8_t *memory; /* of norms and of attention, in turn */
    int tile;        /* the next, as the ring's source counts them */
};

/* Multiplies this block's tiles of a matrix. finish(o, r, sum) gets the sum of output o and row r,
 * o being -1 past the last row; all threads of a warp call it together. */
template <enum sb_dtype TYPE, int NT, class INPUTS, class F>
__device__ __forceinline__ void product(running_block<NT> &block, const panels &w, const INPUTS &x,
                                        F finish)
{
    const int tiles = w.tiles();

    for (; block.tile < tiles; block.tile += (int)gridDim.x) {
        float acc[NT][4];
        multiply_tile<TYPE, NT>(acc, block.ring, x, 0, w.stages());
        const float sum = add_warps<NT>(acc, block.sums);
        if (threadIdx.x < tile_sums<NT>::N)
            finish(w.row(block.tile, (int)threadIdx.x % ROWS), (int)threadIdx.x / ROWS, sum);
        __syncthreads(); /* the sums have been read */
    }
    block.tile -= tiles;
}

/* x += the product */
template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ void add_product(running_block<NT> &block, const step_args &a, int m,
                                            const panels &w, const float *bias,
                                            const uint16_t *from)
{
    const global_inputs inputs = {from, w.ld, m};

    product<TYPE, NT>(block, w, inputs, [&](int o, int r, float sum) {
        if (o < 0 || r >= m)
            return;
        float *x = a.x + (int64_t)r * a.hidden + o;
        *x = __ldcg(x) + (bias ? sum + bias[o] : sum);
    });
}

/* ------------------------------------------------------------------ phases */

/* x[t] = the embedding of token t. A thread copies every so manieth element. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void embed(const step_args &a, const one_step &s)
{
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < s.n_tokens * a.hidden;
         i += (int)gridDim.x * THREADS) {
        const int token = i / a.hidden, k = i % a.hidden, id = __ldcg(a.ids + s.id_at[token]);
        const bool is_known = id >= 0 && id < a.vocab;
        const uint32_t bits = is_known ? a.embed.element(id, k) : 0;
        const uint4 chunk = {bits, 0, 0, 0};
        a.x[i] = element<TYPE>(chunk, 0);
    }
}

template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ void attention(running_block<NT> &block, const step_args &a,
                                          const one_step &s, const step_layer &layer)
{
    const int m = s.n_tokens;
    const panels qkv = layer.w[QKV];
    const float *bias = layer.bias[QKV];
    const normed_inputs inputs = norm_rows<TYPE, NT>(block.memory, a, layer.attn_norm, NULL, m);

    product<TYPE, NT>(block, qkv, inputs, [&](int o, int r, float sum) {
        if (o >= 0 && r < m)
            a.qkv[(int64_t)r * qkv.n_out + o] = bias ? sum + bias[o] : sum;
    });
    grid_barrier(&a.shared->barrier);
    attend_pass<TYPE>(block.memory, a.attention, layer.attention, s, a.qkv, a.attended,
                      layer.w[O].ld);
    grid_barrier(&a.shared->barrier);
    add_product<TYPE, NT>(block, a, m, layer.w[O], layer.bias[O], a.attended);
    grid_barrier(&a.shared->barrier);
}

template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ void mlp(running_block<NT> &block, const step_args &a, const one_step &s,
                                    const step_layer &layer)
{
    const int m = s.n_tokens;
    const int64_t ld = layer.w[DOWN].ld;
    const float *bias = layer.bias[GATE_UP];
    const normed_inputs inputs = norm_rows<TYPE, NT>(block.memory, a, layer.ffn_norm, NULL, m);

    product<TYPE, NT>(block, layer.w[GATE_UP], inputs, [&](int o, int r, float sum) {
        const float v = bias && o >= 0 ? sum + bias[o] : sum;
        const float up = __shfl_down_sync(SB_FULL_WARP, v, ROWS / 2, ROWS);
        if (o >= 0 && o < a.inter && r < m)
            a.act[r * ld + o] = (uint16_t)pack2<TYPE>(v / (1.0f + sb_exp(0.0f - v)) * up, 0.0f);
    });
    grid_barrier(&a.shared->barrier);
    add_product<TYPE, NT>(block, a, m, layer.w[DOWN], layer.bias[DOWN], a.act);
    grid_barrier(&a.shared->barrier);
}

/* A logit and its id as a number that is the larger the larger the logit is, and of equal ones the
 * lower the id; NaN is the largest. It is never 0. */
__device__ __forceinline__ wide key_of(float logit, int id)
{
    const uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 becomes 0 */
    const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;

    return logit != logit ? ~(wide)0 : (wide)order << 32 | (uint32_t)~id;
}

template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ void propose(running_block<NT> &block, const step_args &a,
                                        const one_step &s)
{
    const normed_inputs inputs = norm_rows<TYPE, NT>(block.memory, a, a.final_norm, s.out, s.n_out);
    wide best = 0;

    product<TYPE, NT>(block, a.head, inputs, [&](int o, int, float sum) {
        const wide key = o >= 0 ? key_of(sum, o) : 0;
        best = key > best ? key : best;
    });
    for (int step = ROWS / 2; step > 0; step /= 2) {
        const wide other = __shfl_xor_sync(SB_FULL_WARP, best, step);
        best = other > best ? other : best;
    }
    if (threadIdx.x % ROWS == 0 && (int)threadIdx.x / ROWS < s.n_out && best > 0)
        atomicMax(&a.shared->best[threadIdx.x / ROWS], best);
    grid_barrier(&a.shared->barrier);
    if (blockIdx.x == 0 && (int)threadIdx.x < s.n_out) {
        wide *of = &a.shared->best[threadIdx.x];
        const wide key = __ldcg(of);
        a.ids[s.select_at[threadIdx.x]] = key == ~(wide)0 ? (int32_t)SB_PICK_NAN
                                                          : (int32_t) ~(uint32_t)key;
        *of = 0;
    }
    grid_barrier(&a.shared->barrier);
}

template <enum sb_dtype TYPE, int NT>
__global__ void __launch_bounds__(THREADS, 1) step_kernel(const step_args a)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    running_block<NT> block;

    block.sums = (float *)(shared + WARPS * STAGES * STAGE_BYTES);
    block.memory = shared + WARPS * STAGES * STAGE_BYTES + tile_sums<NT>::BYTES;
    block.tile = (int)blockIdx.x;
    block.ring.source.begin(a);
    block.ring.begin(shared + threadIdx.x / 32 * (STAGES * STAGE_BYTES));
    for (int i = 0; i < a.n_steps; i++) {
        const one_step &s = a.steps[i];
        embed<TYPE>(a, s);
        grid_barrier(&a.shared->barrier);
        for (int l = 0; l < a.n_layers; l++) {
            attention<TYPE, NT>(block, a, s, a.layers[l]);
            mlp<TYPE, NT>(block, a, s, a.layers[l]);
        }
        propose<TYPE, NT>(block, a, s);
    }
}

/* ------------------------------------------------------------------ preparing */

typedef void (*step_function)(const step_args);

step_function kernel_for(enum sb_dtype type, int m)
{
    if (type == SB_BF16)
        return m <= 8 ? step_kernel<SB_BF16, 1> : step_kernel<SB_BF16, 2>;
    return m <= 8 ? step_kernel<SB_F16, 1> : step_kernel<SB_F16, 2>;
}

/* Bytes of shared memory of a block for up to m rows. */
int shared_bytes(int hidden, int group, int m)
{
    const int rows = m <= 8 ? 8 : 16,
              sums = m <= 8 ? (int)tile_sums<1>::BYTES : (int)tile_sums<2>::BYTES;
    const int norms = rows * normed_inputs::pitch_of(sb_cuda_ld(SB_BF16, hidden));
    const int heads = attend_memory::bytes(group);

    return WARPS * STAGES * STAGE_BYTES + sums + (norms > heads ? norms : heads);
}

panels panels_of(const struct sb_weight *w, enum sb_dtype type)
{
    return {(const uint16_t *)w->data, sb_cuda_ld(type, w->n_in), w->n_out, w->gated};
}

/* Quantised weights lie in tiles of their own. */
bool is_tiled(const struct sb_weight *w, enum sb_dtype type)
{
    return w->dtype == type && !w->next;
}

bool layer_suits(const struct sb_step_layer *l, enum sb_dtype type)
{
    return !l->post_attn_norm && !l->post_ffn_norm && is_tiled(l->qkv, type) &&
           is_tiled(l->o, type) && is_tiled(l->gate_up, type) && is_tiled(l->down, type) &&
           l->gate_up->gated > 0;
}

bool model_suits(const struct sb_step_model *m, const struct sb_step_layer *layers,
                 enum sb_dtype type)
{
    const struct sb_attention *a = &layers[0].attention;

    for (int i = 0; i < m->n_layers; i++)
        if (!layer_suits(&layers[i], type))
            return false;
    return type != SB_F32 && is_tiled(m->embed, type) && is_tiled(m->head, type) &&
           a->head_dim <= HEAD && a->heads % a->kv_heads == 0 && a->heads / a->kv_heads <= GROUP &&
           shared_bytes(m->hidden, a->heads / a->kv_heads, 1) <= 227 * 1024;
}

cudaError_t copy_layers(struct step_layer *to, const struct sb_step_model *m,
                        const struct sb_step_layer *layers, enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    for (int i = 0; error == cudaSuccess && i < m->n_layers; i++) {
        const struct sb_step_layer *l = &layers[i];
        const step_layer layer = {{panels_of(l->qkv, type), panels_of(l->o, type),
                                   panels_of(l->gate_up, type), panels_of(l->down, type)},
                                  {l->qkv_bias, l->o_bias, l->gate_up_bias, l->down_bias},
                                  l->attn_norm,
                                  l->ffn_norm,
                                  {l->attention.q_norm, l->attention.k_norm,
                                   (uint16_t *)l->attention.k, (uint16_t *)l->attention.v}};
        error = cudaMemcpy(to + i, &layer, sizeof layer, cudaMemcpyHostToDevice);
    }
    return error;
}

/* The memory of step_prepare: step_memory, counters, layers. */
struct memory_parts {
    step_memory *shared;
    unsigned *counters;
    step_layer *layers;
    size_t bytes;

    memory_parts(void *memory, int kv_heads, int n_layers)
    {
        const size_t counted = ((size_t)MOST_TOKENS * (size_t)kv_heads * sizeof *counters + 15) /
                               16 * 16;
        shared = (step_memory *)memory;
        counters = (unsigned *)(shared + 1);
        layers = (step_layer *)((char *)counters + counted);
        bytes = sizeof *shared + counted + (size_t)n_layers * sizeof *layers;
    }
};

/* What the device gives a block at most. */
cudaError_t most_shared_of(int32_t *bytes, int device)
{
    int most = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                                     device);

    *bytes = most;
    return error;
}

/* As many blocks as are on the device at once, but no more than the widest matrix has tiles. */
cudaError_t count_blocks(struct sb_cuda_draft *draft, int shared)
{
    const int tiles = (draft->head.n_out + ROWS - 1) / ROWS;
    int device = 0, processors = 0, resident = 0, cooperates = 0;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, (const void *)kernel_for(draft->type, 1), THREADS, (size_t)shared);
    if (error == cudaSuccess)
        error = most_shared_of(&draft->most_shared, device);
    draft->blocks = !cooperates || resident < 1 ? 0 : processors < tiles ? processors : tiles;
    return error;
}

one_step step_of(const struct sb_draft_step *s)
{
    return {s->pass.n_tokens, s->pass.n_out, s->pass.max_len, s->pass.id_at,
            s->pass.pos,      s->pass.seq,   s->pass.cap,     s->pass.start,
            s->pass.out,      s->select_at,  s->pass.base};
}

int most_tokens(const struct sb_draft_step *steps, int n)
{
    int most = 0;

    for (int i = 0; i < n; i++)
        most = steps[i].pass.n_tokens > most ? steps[i].pass.n_tokens : most;
    return most;
}

} // namespace

size_t sb_cuda_step_bytes(const struct sb_exec_limits *limits)
{
    return memory_parts(NULL, limits->max_heads, limits->draft_layers).bytes;
}

cudaError_t sb_cuda_step_prepare(struct sb_cuda_draft *draft, const struct sb_step_model *model,
                                 const struct sb_step_layer *layers, enum sb_dtype type,
                                 void *memory)
{
    const struct sb_attention *a = &layers[0].attention;
    const memory_parts parts(memory, a->heads, model->n_layers);
    cudaError_t error = cudaSuccess;

    *draft = {*model, *model->embed, *model->head, *a, type, 0, 0, memory};
    if (!model_suits(model, layers, type))
        return error;
    error = count_blocks(draft, shared_bytes(model->hidden, a->heads / a->kv_heads, 1));
    if (error == cudaSuccess && draft->blocks > 0)
        error = copy_layers(parts.layers, model, layers, type);
    return error;
}

int sb_cuda_step_suits(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                       int32_t n)
{
    const struct sb_attention *a = &draft->attention;
    const int m = most_tokens(steps, n);

    return draft->blocks > 0 && m <= MOST_TOKENS &&
           shared_bytes(draft->model.hidden, a->heads / a->kv_heads, m) <= draft->most_shared;
}

cudaError_t sb_cuda_steps(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                          int32_t n, int32_t limit, int32_t *ids, void *scratch,
                          cudaStream_t stream)
{
    const struct sb_step_model *m = &draft->model;
    const struct sb_attention *t = &draft->attention;
    const memory_parts parts(draft->memory, t->heads, m->n_layers);
    const int most = most_tokens(steps, n);
    const int shared = shared_bytes(m->hidden, t->heads / t->kv_heads, most);
    step_args a = {};

    if (n <= 0 || n > SB_DRAFT_STEPS_MAX || !sb_cuda_step_suits(draft, steps, n))
        return cudaErrorInvalidValue;
    a.layers = parts.layers;
    a.shared = parts.shared;
    a.embed = panels_of(&draft->embed, draft->type);
    a.head = panels_of(&draft->head, draft->type);
    a.head.n_out = limit < a.head.n_out ? limit : a.head.n_out;
    a.final_norm = m->final_norm;
    a.x = m->x;
    a.qkv = m->qkv;
    a.attended = (uint16_t *)m->attended;
    a.act = (uint16_t *)m->act;
    a.ids = ids;
    a.attention = {t->cos,
                   t->sin,
                   (float *)scratch,
                   parts.counters,
                   t->heads,
                   t->kv_heads,
                   t->head_dim,
                   t->rot_dim,
                   t->rot_interleaved,
                   t->eps,
                   t->scale * 1.44269504088896341f};
    a.eps = m->eps;
    a.n_layers = m->n_layers;
    a.hidden = m->hidden;
    a.inter = m->inter;
    a.vocab = draft->embed.n_out;
    a.n_steps = n;
    for (int i = 0; i < n; i++)
        a.steps[i] = step_of(&steps[i]);
    return SB_LAUNCH_WITH(SB_COOPERATIVE, kernel_for(draft->type, most),
                          dim3((unsigned)draft->blocks), dim3(THREADS), (size_t)shared, stream, a);
}

/* The shared memory that a kernel may have is what the device gives a block at most: what a model
 * needs is only known later. */
cudaError_t sb_load_draft_step(enum sb_dtype type)
{
    int32_t most = 0;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = most_shared_of(&most, device);
    for (int m = 8; error == cudaSuccess && type != SB_F32 && m <= MOST_TOKENS; m += 8)
        error = sb_load(kernel_for(type, m), most);
    return error;
}
