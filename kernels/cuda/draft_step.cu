/*
 * Steps of a draft as one kernel: all layers of up to eight steps, for at most eight tokens a step.
 *
 * A step of a small model of few tokens is 200 launches, most of which take less time to run than
 * to begin and to end. Here one launch has a block on every multiprocessor, and barriers over the
 * grid take the place of launches:
 *
 *     embed |                                                          x f32
 *     layer: norm, qkv | attention | x += o | norm, gate_up, gate | x += down |        5 barriers
 *     norm, head, largest logit | ids |      or, of a launch of one step: norm, head, logits
 *
 * Every block normalises all rows for itself, into shared memory, rather than wait for one that
 * does. An output column of o and down belongs to one block, which adds it to x.
 *
 * Up to four tokens need three of a layer's barriers only. Each element of x is stored together
 * with a number, its tag, which changes whenever x does (store_tagged of grid.cuh); a norm takes an
 * element when it has the tag of the half layer before. So nobody fences, and an element is there
 * for all when its own block has stored it. The barriers that are left keep blocks from getting so
 * far ahead that they would overwrite what others still read. More tokens have x as it is: with
 * tags every block would read twice as many bytes (8 rows of 1024 columns 1500 clocks more, at 21
 * bytes a clock from L2, by estimate).
 *
 * Memory. Weights and cached keys are copied ahead of all barriers, by a warp that does nothing
 * else, in the order in which the others will use them (draft_stream.cuh). The weights of a norm
 * come to shared memory while the phase before it runs, and what the model's layers and the steps'
 * tokens are stays there, so that between two barriers a block waits for little more than what
 * other blocks have just made.
 *
 * Results are those of the single operations but for the order of additions and queries that keep
 * twice the bits. They do not depend on the number of blocks or on the other rows of a launch.
 *
 * Rejected: kernels for 16 and 32 tokens. On an H200 a step of a model of 0.6 billion weights took
 * 1.9 ms by them with 16 sequences and 2.8 with 32; by single operations it takes 1.1 ms with 8
 * sequences and 1.6 with 32. A kernel for each layer, whose 28 launches wait as long as the
 * barriers; norms of sums that the block before has made, which need the scale of a row before the
 * row is complete.
 */
#include "kernels/cuda/draft_block.cuh"

namespace
{

enum {
    MOST_TILES = 4,        /* that the warps multiply before they meet */
    MOST_HIDDEN = 1 << 14, /* far more than have room in shared memory, */
    MOST_LAYERS = 1 << 10  /* and so are these */
};

/* ------------------------------------------------------------------ norm */

/* Rows 0 .. m - 1 of x before that half of a layer: row i is that of token index[i], or i. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ normed_inputs norm_rows(const running_block &block, const step_args &a,
                                                   int step, int half, const int32_t *index, int m)
{
    norm_parts *const parts = (norm_parts *)(block.memory + a.layout.parts);
    const normed_inputs inputs = {block.memory + a.layout.rows, normed_inputs::pitch_of(a.head.ld),
                                  m};
    const norm_shape of = {a.hidden, (int)a.head.ld, a.hidden_inverse, a.eps};

    if (block.has_tags(a, step)) {
        block.await_norm();
        norm_some<TYPE>(block.memory + a.layout.rows,
                        awaited_rows{a.tagged_x, a.hidden, block.tag_of(step, half)}, index, 0,
                        block.norm(a), parts->of[0], m, of);
    } else {
#pragma unroll 1
        for (int i = 0; i < m; i += ROWS_AT_ONCE)
            norm_some<TYPE>(block.memory + a.layout.rows + i * inputs.pitch,
                            known_rows{a.x, a.hidden}, index, i, block.norm(a),
                            parts->of[i / ROWS_AT_ONCE % 2], min(m - i, (int)ROWS_AT_ONCE), of);
    }
    sync_threads<THREADS>();
    return inputs;
}

/* ------------------------------------------------------------------ products */

/* Who adds up and finishes which sums of a product: half a warp has the 16 outputs of a tile and a
 * row, for each tile and each of 2^shift rows, of which m are there. In every tile it is the same
 * row. */
struct row_deal {
    int shift;

    __device__ __forceinline__ row_deal(int m) : shift(0)
    {
        while (1 << shift < m)
            shift++;
    }
    __device__ __forceinline__ int row() const
    {
        return (int)threadIdx.x / ROWS & ((1 << shift) - 1);
    }
};

/* Which output and row a thread finishes, o being -1 where there is none. */
struct sum_place {
    int tile, o, r; /* tile: of those that the warps have multiplied */
};

/* Multiplies this block's tiles of a matrix, between barriers of the grid. early(o, r) loads what
 * finish(o, r, sum, early) needs beside the sum of output o and row r: it is called before the sum
 * is made, so that nobody waits for it. All threads of a warp call both together. The warps meet
 * once for several tiles. is_fenced: a fence follows */
template <enum sb_dtype TYPE, class INPUTS, class E, class F>
__device__ __forceinline__ void product(running_block &block, const step_args &a, const panels &w,
                                        const INPUTS &x, const row_deal &deal, bool is_fenced,
                                        E early, F finish)
{
    const int tiles = w.tiles(), blocks = (int)gridDim.x;
    float *sums = (float *)(block.memory + a.layout.shared);
    int left = 0; /* of this block's tiles */

    while (block.tile + left * blocks < tiles)
        left++;
    while (left > 0) {
        const int n = min(a.layout.tiles_at_once, left);
        const auto place = [&](unsigned i) -> sum_place {
            const int tile = (int)(i / ROWS >> deal.shift), at = (int)(i % ROWS);
            return {tile, tile < n ? w.row(block.tile + tile * blocks, at) : -1, deal.row()};
        };
        const auto load = [&](unsigned i) {
            const sum_place at = place(i);
            return early(at.o, at.r);
        };
        auto loaded = load(threadIdx.x);
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            float acc[4];
            multiply_tile<TYPE>(acc, block.ring, x, 0, w.stages());
            store_warp_sums(sums + i * SUM_FLOATS, acc);
        }
        if (left == n && is_fenced)
            block.tables().set_storing(1);
        sync_threads<THREADS>();
        const unsigned all = (unsigned)n << deal.shift; /* half warps' worth of them */
#pragma unroll 1
        for (unsigned i = threadIdx.x; i / 32 * 2 < all; i += THREADS) {
            const auto later = load(i + THREADS);
            const sum_place at = place(i);
            finish(at.o, at.r,
                   at.tile < n ? add_warps(sums + at.tile * SUM_FLOATS, at.r, (int)(i % ROWS))
                               : 0.0f,
                   loaded);
            loaded = later;
        }
        block.tile += n * blocks;
        left -= n;
        if (left > 0)
            sync_threads<THREADS>(); /* the sums have been read */
    }
    block.tile -= tiles;
}

/* For a product that needs no more than its sums. */
__device__ __forceinline__ int nothing(int, int)
{
    return 0;
}

/* x += the product of half a layer. Behind the last of a step x is there without tags, too, for
 * whoever looks at it when the kernel has ended. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void add_product(running_block &block, const step_args &a, int step,
                                            int half, const panels &w, const float *bias,
                                            const uint16_t *from)
{
    const int m = a.steps[step].n_tokens;
    const global_inputs inputs = {from, w.ld, m};
    const bool has_tags = block.has_tags(a, step);
    const auto at = [&](int o, int r) { return (int64_t)r * a.hidden + o; };
    const auto with_tag = [&](int o, int r) { return r * tagged_pitch(a.hidden) + tagged_at(o); };

    product<TYPE>(
        block, a, w, inputs, m, !has_tags,
        [&](int o, int r) {
            return o < 0 || r >= m ? 0.0f
                   : has_tags      ? __ldcg(&a.tagged_x[with_tag(o, r)].value)
                                   : __ldcg(a.x + at(o, r));
        },
        [&](int o, int r, float sum, float x) {
            const float all = (SB_CUDA_FAULT(RESIDUAL_TWICE) ? 2.0f : 1.0f) * x +
                              (bias && o >= 0 ? sum + bias[o] : sum);
            if (o < 0 || r >= m)
                return;
            if (has_tags)
                store_tagged(a.tagged_x + with_tag(o, r), all, block.tag_of(step, half + 1));
            if (!has_tags || half + 1 == 2 * a.n_layers)
                a.x[at(o, r)] = all;
        });
}

/* ------------------------------------------------------------------ phases */

/* x[t] = the embedding of token t. A thread copies every so manieth element. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void embed(const running_block &block, const step_args &a, int step)
{
    const one_step &s = a.steps[step];

#pragma unroll 1
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < s.n_tokens * a.hidden;
         i += (int)gridDim.x * THREADS) {
        const int token = i / a.hidden, k = i % a.hidden, id = __ldcg(a.ids + s.id_at[token]);
        const bool is_known = id >= 0 && id < a.vocab;
        const float value = widened<TYPE>(is_known ? a.embed.element(id, k) : 0);
        if (block.has_tags(a, step))
            store_tagged(a.tagged_x + token * tagged_pitch(a.hidden) + tagged_at(k), value,
                         block.tag_of(step, 0));
        else
            a.x[i] = value;
    }
}

/* The weights of the norm behind half a layer. */
__device__ __forceinline__ const float *norm_behind(const stream_tables &tables, int half,
                                                    const step_args &a)
{
    const int next = half / 2 + 1;

    return half % 2 == 0       ? tables.layers[half / 2].ffn_norm
           : next < a.n_layers ? tables.layers[next].attn_norm
                               : a.final_norm;
}

/* Half a layer: attention, or the MLP. Both are a norm, a product, something between, and a product
 * that is added to x; one code for both is half as long. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void half_layer(running_block &block, const step_args &a, int step,
                                           int half)
{
    const bool is_mlp = half % 2;
    const step_layer &layer = block.tables().layers[half / 2];
    const one_step &s = a.steps[step];
    const int m = s.n_tokens, first = is_mlp ? GATE_UP : QKV, second = is_mlp ? DOWN : O;
    const panels &w = layer.w[first];
    const normed_inputs inputs = norm_rows<TYPE>(block, a, step, half, NULL, m);

    product<TYPE>(block, a, w, inputs, m, true, nothing, [&](int o, int r, float sum, int) {
        const float *bias = layer.bias[first];
        const float v = bias && o >= 0 ? sum + bias[o] : sum;
        const float up = __shfl_down_sync(SB_FULL_WARP, v, ROWS / 2, ROWS);
        if (!is_mlp && o >= 0 && r < m)
            a.qkv[(int64_t)r * w.n_out + o] = v;
        if (is_mlp && o >= 0 && o < a.inter && r < m)
            a.act[r * layer.w[second].ld + o] = (uint16_t)rounded<TYPE>(
                __fdividef(v, 1.0f + sb_exp(0.0f - v)) * up);
    });
    attend_unit unit = {};
    end_phase(block, a, [&] {
        block.bring_norm(norm_behind(block.tables(), half, a), a);
        if (!is_mlp)
            unit = unit_of(block.tables(), step, block.tile);
    });
    if (!is_mlp) {
        const attend_pass pass = {
            a.attention, layer.attention, block.tables(),     step,
            a.qkv,       a.attended,      layer.w[second].ld, (s.max_len + PART - 1) / PART};
        attend<TYPE>(block.ring, block.tile, unit, block.memory + a.layout.shared,
                     a.layout.units_at_once, pass);
        if (!SB_CUDA_FAULT(NO_BARRIER_BEHIND_ATTENTION))
            end_phase(block, a, [] {});
        if (threadIdx.x == 0)
            store_release_shared(&block.tables().attended,
                                 (unsigned)(step * a.n_layers + half / 2 + 1));
    }
    add_product<TYPE>(block, a, step, half, layer.w[second], layer.bias[second],
                      is_mlp ? a.act : a.attended);
    end_changes(block, a, step);
}

/* A logit and its id as a number that is the larger the larger the logit is, and of equal ones the
 * lower the id; NaN is the largest. It is never 0. */
__device__ __forceinline__ wide key_of(float logit, int id)
{
    const uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 becomes 0 */
    const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;

    return logit != logit ? ~(wide)0 : (wide)order << 32 | (uint32_t)~id;
}

/* The proposals of a step, or the logits for a kernel that samples. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void propose(running_block &block, const step_args &a, int step)
{
    const one_step &s = a.steps[step];
    const normed_inputs inputs = norm_rows<TYPE>(block, a, step, 2 * a.n_layers, s.out, s.n_out);
    const row_deal deal(s.n_out);
    wide best = 0; /* of the row whose sums this thread finishes */

    product<TYPE>(block, a, a.head, inputs, deal, !a.logits, nothing,
                  [&](int o, int r, float sum, int) {
                      const wide key = o >= 0 ? key_of(sum, o) : 0;
                      if (a.logits && o >= 0 && r < s.n_out)
                          a.logits[r * a.logits_stride + o] = sum;
                      best = key > best ? key : best;
                  });
    if (a.logits)
        return;
    for (int i = ROWS / 2; i > 0; i /= 2) {
        const wide other = __shfl_xor_sync(SB_FULL_WARP, best, i);
        best = other > best ? other : best;
    }
    if (threadIdx.x % ROWS == 0 && deal.row() < s.n_out && best > 0)
        atomicMax(&a.shared->best[deal.row()], best);
    end_phase(block, a, [] {});
    if (blockIdx.x == 0 && (int)threadIdx.x < s.n_out) {
        wide *of = &a.shared->best[threadIdx.x];
        const wide key = __ldcg(of);
        a.ids[s.select_at[threadIdx.x]] = key == ~(wide)0 ? (int32_t)SB_PICK_NAN
                                                          : (int32_t) ~(uint32_t)key;
        *of = 0;
    }
    end_phase(block, a, [] {});
}

template <enum sb_dtype TYPE>
__global__ void __launch_bounds__(BLOCK, 1) step_kernel(const step_args a)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    running_block block;

    block.ring = {shared, 0};
    block.memory = shared + (int)step_ring::BYTES;
    block.tile = (int)blockIdx.x;
    if (threadIdx.x < THREADS)
        make_tables(&block.tables(), a);
    else if (threadIdx.x == THREADS)
        block.ring.make_mbarriers();
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        stream_source source;
        source.begin(&block.tables());
        copy_all(block.ring, source);
        return;
    }
#pragma unroll 1
    for (int step = 0; step < a.n_steps; step++) {
        block.bring_norm(block.tables().layers[0].attn_norm, a);
        embed<TYPE>(block, a, step);
        end_changes(block, a, step);
#pragma unroll 1
        for (int half = 0; half < 2 * a.n_layers; half++)
            half_layer<TYPE>(block, a, step, half);
        propose<TYPE>(block, a, step);
    }
    if (blockIdx.x + threadIdx.x == 0)
        a.shared->tag = block.tag_of(a.n_steps, 0) - 1;
}

/* ------------------------------------------------------------------ preparing */

void (*kernel_for(enum sb_dtype type))(const step_args)
{
    return type == SB_BF16 ? step_kernel<SB_BF16> : step_kernel<SB_F16>;
}

int within(int n, int most)
{
    return n < 0 ? 0 : n < most ? n : most;
}

int to_16(int bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* The layout of a block's memory. As much is done at once as there is room for; where that is
 * nothing, the model does not suit. */
block_layout layout_of(const struct sb_cuda_draft *draft)
{
    enum { RING = step_ring::BYTES, SUMS = SUM_FLOATS * (int)sizeof(float) };
    const int group = draft->attention.heads / draft->attention.kv_heads,
              norms = MOST_ROWS * normed_inputs::pitch_of(sb_cuda_ld(SB_BF16, draft->model.hidden));
    block_layout at = {};

    at.norm = to_16(stream_tables::bytes(draft->model.n_layers));
    at.parts = at.norm + to_16(draft->model.hidden * (int)sizeof(float));
    at.shared = at.parts + (int)sizeof(norm_parts);
    const int room = draft->most_shared - RING - at.shared;
    at.tiles_at_once = within((room - norms) / SUMS, MOST_TILES);
    at.units_at_once = within(room / attend_memory::bytes_of_all(group, 1), MOST_UNITS);
    at.rows = at.shared + at.tiles_at_once * SUMS;
    const int used = at.tiles_at_once * SUMS + norms,
              attended = attend_memory::bytes_of_all(group, at.units_at_once);
    at.bytes = draft->most_shared - room + (used > attended ? used : attended);
    return at;
}

bool suits(const block_layout &layout)
{
    return layout.tiles_at_once > 0 && layout.units_at_once > 0;
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

/* Parts of keys are dealt to the blocks from position 0 on, so a layer may have no window, nor has
 * the sum of its parts a sink, scores are not capped, and all layers have one table of rotations.
 */
bool layer_suits(const struct sb_step_layer *l, enum sb_dtype type)
{
    return l->attention.window == 0 && !l->attention.sinks && l->attention.score_cap == 0.0f &&
           !l->post_attn_norm && !l->post_ffn_norm && is_tiled(l->qkv, type) &&
           is_tiled(l->o, type) && is_tiled(l->gate_up, type) && is_tiled(l->down, type) &&
           l->gate_up->gated > 0;
}

/* The kernel gates by silu and takes embeddings as they are in the table. Other models, of which
 * Gemma 3 is one, have their steps by single operations. */
bool model_suits(const struct sb_step_model *m, const struct sb_step_layer *layers,
                 enum sb_dtype type)
{
    const struct sb_attention *a = &layers[0].attention;

    for (int i = 0; i < m->n_layers; i++)
        if (!layer_suits(&layers[i], type) || layers[i].attention.cos != a->cos)
            return false;
    return type != SB_F32 && m->gate == SB_GATE_SILU && m->embed_scale == 1.0f &&
           is_tiled(m->embed, type) && is_tiled(m->head, type) && a->head_dim <= HEAD &&
           a->heads % a->kv_heads == 0 && a->heads / a->kv_heads <= GROUP &&
           m->hidden <= MOST_HIDDEN && m->hidden % 4 == 0 && m->n_layers <= MOST_LAYERS;
}

cudaError_t copy_layers(struct step_layer *to, const struct sb_step_model *m,
                        const struct sb_step_layer *layers, enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    for (int i = 0; error == cudaSuccess && i < m->n_layers; i++) {
        const struct sb_step_layer *l = &layers[i];
        const step_layer layer = {{panels_of(l->qkv, type),
                                   {},
                                   panels_of(l->o, type),
                                   panels_of(l->gate_up, type),
                                   panels_of(l->down, type)},
                                  {l->qkv_bias, NULL, l->o_bias, l->gate_up_bias, l->down_bias},
                                  l->attn_norm,
                                  l->ffn_norm,
                                  {l->attention.q_norm, l->attention.k_norm,
                                   (uint16_t *)l->attention.k, (uint16_t *)l->attention.v}};
        error = cudaMemcpy(to + i, &layer, sizeof layer, cudaMemcpyHostToDevice);
    }
    /* cudaMemcpy may return while the copy is still on its way. */
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

/* The memory of step_prepare: step_memory, counters, layers, x with tags. */
struct memory_parts {
    step_memory *shared;
    unsigned *counters;
    step_layer *layers;
    tagged *x;
    size_t bytes;

    memory_parts(void *memory, int kv_heads, int n_layers, int hidden)
    {
        const size_t counted = ((size_t)MOST_TOKENS * (size_t)kv_heads * sizeof *counters + 15) /
                               16 * 16;
        shared = (step_memory *)memory;
        counters = (unsigned *)(shared + 1);
        layers = (step_layer *)((char *)counters + counted);
        const size_t before = (sizeof *shared + counted + (size_t)n_layers * sizeof *layers + 15) /
                              16 * 16;
        x = (tagged *)((char *)memory + before);
        bytes = before + (size_t)TAGGED_ROWS * (size_t)tagged_pitch(hidden) * sizeof *x;
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
cudaError_t count_blocks(struct sb_cuda_draft *draft)
{
    const int tiles = (draft->head.n_out + ROWS - 1) / ROWS;
    int device = 0, processors = 0, resident = 0, cooperates = 0;
    block_layout layout = {};
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device);
    if (error == cudaSuccess)
        error = most_shared_of(&draft->most_shared, device);
    if (error == cudaSuccess)
        layout = layout_of(draft);
    if (error == cudaSuccess && suits(layout))
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, (const void *)kernel_for(draft->type), BLOCK, (size_t)layout.bytes);
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
    return memory_parts(NULL, limits->max_heads, limits->draft_layers, limits->max_width).bytes;
}

cudaError_t sb_cuda_step_prepare(struct sb_cuda_draft *draft, const struct sb_step_model *model,
                                 const struct sb_step_layer *layers, enum sb_dtype type,
                                 void *memory)
{
    const struct sb_attention *a = &layers[0].attention;
    const memory_parts parts(memory, a->heads, model->n_layers, model->hidden);
    cudaError_t error = cudaSuccess;

    *draft = {*model, *model->embed, *model->head, *a, type, 0, 0, memory};
    if (!model_suits(model, layers, type))
        return error;
    error = count_blocks(draft);
    if (error == cudaSuccess && draft->blocks > 0)
        error = copy_layers(parts.layers, model, layers, type);
    return error;
}

int sb_cuda_step_suits(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                       int32_t n)
{
    return draft->blocks > 0 && most_tokens(steps, n) <= MOST_TOKENS;
}

cudaError_t sb_cuda_steps(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                          int32_t n, int32_t limit, int32_t *ids, float *logits, void *scratch,
                          cudaStream_t stream)
{
    const struct sb_step_model *m = &draft->model;
    const struct sb_attention *t = &draft->attention;
    const memory_parts parts(draft->memory, t->heads, m->n_layers, m->hidden);
    step_args a = {};

    if (n <= 0 || n > (logits ? 1 : (int)SB_DRAFT_STEPS_MAX) ||
        !sb_cuda_step_suits(draft, steps, n))
        return cudaErrorInvalidValue;
    a.layers = parts.layers;
    a.shared = parts.shared;
    a.embed = panels_of(&draft->embed, draft->type);
    a.head = panels_of(&draft->head, draft->type);
    a.head.n_out = limit < a.head.n_out ? limit : a.head.n_out;
    a.final_norm = m->final_norm;
    a.x = m->x;
    a.qkv = m->qkv;
    a.tagged_x = parts.x;
    a.attended = (uint16_t *)m->attended;
    a.act = (uint16_t *)m->act;
    a.ids = ids;
    a.logits = logits;
    a.logits_stride = draft->head.n_out;
    a.attention = {t->cos,
                   t->sin,
                   (float *)scratch,
                   parts.counters,
                   t->heads,
                   t->kv_heads,
                   t->heads / t->kv_heads,
                   t->head_dim,
                   t->rot_dim,
                   t->rot_interleaved,
                   t->eps,
                   t->scale * SB_LOG2_E,
                   t->rot_dim == t->head_dim && !t->rot_interleaved && t->head_dim % 8 == 0};
    a.eps = m->eps;
    a.n_layers = m->n_layers;
    a.hidden = m->hidden;
    a.hidden_inverse = 1.0f / (float)m->hidden;
    a.inter = m->inter;
    a.vocab = draft->embed.n_out;
    a.n_steps = n;
    a.layout = layout_of(draft);
    for (int i = 0; i < n; i++)
        a.steps[i] = step_of(&steps[i]);
    return SB_LAUNCH_WITH(SB_COOPERATIVE, kernel_for(draft->type), dim3((unsigned)draft->blocks),
                          dim3(BLOCK), (size_t)a.layout.bytes, stream, a);
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
    if (error == cudaSuccess && type != SB_F32)
        error = sb_load(kernel_for(type), most);
    return error;
}
