/*
 * What a device can do: the narrow layer between the engine and the kernels. Each backend, the CPU
 * (cpu.c) or CUDA (cuda/ops.c), is one table of functions, struct sb_backend below.
 *
 * What holds for every operation is stated here once.
 *
 * - Pointers marked dev are addresses in the device's memory, which on the CPU is ordinary memory.
 *   Only upload and download move data between it and host memory.
 * - An exec runs its operations in the order of the calls. An operation may return before it has
 *   run. It never waits, never allocates memory, and does nothing when it is given zero rows.
 *   exec_sync waits and reports what went wrong.
 * - ROW INVARIANCE. Row r of a result is a function of row r of the input and, in attention, of the
 *   earlier tokens of the same sequence. It does not depend on anything else: not on the number of
 *   rows, the row's index, its neighbours, the thread count, the slot or the start column. This is
 *   the library's contract. Whoever changes an operation runs test/cpu/test_kernels.c, which
 *   compares bits.
 * - Matrices are row-major and dense, and m is the number of their rows. Activations are f32, with
 *   one exception. GEMM INPUTS, which only a gemm reads (a normed row, an attention output, a gated
 *   row), are kept in the form that the device's matrix units read. A gemm input of n columns takes
 *   input_bytes(n) bytes, and the engine passes it on as void without looking inside.
 * - An element of the KV cache takes cache_bytes bytes. Its type is an option of the device: f32,
 *   bf16 or f16 on the CPU, and always the weights' type on a GPU. What rope_kv writes is rounded
 *   to it, and attend reads that, widened to f32 on the CPU.
 * - Element offsets are 64-bit. Sizes are so small that no product of them overflows int64_t;
 *   model loading and pool creation have checked that.
 *
 * Cache addressing. The cached K of one layer is one plane, and so is its V. A plane has the shape
 * [slot, kv_head, column, head_dim]. Each sequence of a pass brings the index of its slot's first
 * element (`base`), the number of columns of the slot (`cap`), and the column of its position 0
 * (`start`). Position p of head h is then at
 *
 *     plane + base + (h * cap + start + p) * head_dim
 *
 * so a kernel never multiplies a slot number by a stride, and cannot reach columns before `start`.
 */
#ifndef SB_BACKEND_H
#define SB_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

/* Types of elements. Those from SB_Q8_0 on are quantised: an element is a small integer, and blocks
 * of elements share scales. Their rows lie as in GGUF files (quant.h). */
enum sb_dtype {
    SB_F32,
    SB_BF16,
    SB_F16,
    SB_Q8_0,
    SB_Q4_0,
    SB_Q4_K,
    SB_Q5_K,
    SB_Q6_K,
    SB_MXFP4,
    SB_DTYPES
};
int sb_dtype_is_quantised(enum sb_dtype dtype);
size_t sb_dtype_size(enum sb_dtype dtype); /* bytes of one element, for types not quantised */
/* Bytes of a row of n elements, which is filled up to whole blocks. */
size_t sb_dtype_row_bytes(enum sb_dtype dtype, size_t n);
const char *sb_dtype_name(enum sb_dtype dtype); /* "f32", "bf16", "q8_0", "q4_k" */
/* The type that SPECBATCH_KV_* names; AUTO names `automatic`. */
enum sb_dtype sb_kv_dtype(int32_t kv, enum sb_dtype automatic);
/* The type that a matrix of type `stored` gets by SPECBATCH_WEIGHTS_*. is_table: whether it is the
 * embedding table or the output layer */
enum sb_dtype sb_weights_dtype(int32_t weights, enum sb_dtype stored, int is_table);
/* Converts a row of n elements from one type to another. A value that the new type cannot hold is
 * rounded to the nearest one, ties to even. What is too large for f16 becomes its largest finite
 * value. Quantised types can be converted to all that are not. For the reverse there is
 * sb_convert_rows (quantiser.h). */
void sb_convert(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                size_t n);

struct sb_log;

/* What was chosen when a model was loaded: the SIMD level of the CPU, the GPU, the compute class.
 * A model has one device, which does not change once it is calibrated. */
struct sb_device;

/* Where a pool runs one of its models: a stream of the GPU or the threads of the CPU, and scratch
 * memory. */
struct sb_exec;

/*
 * The weights of a linear map y = W x, with W [n_out, n_in], packed as the backend likes. On the
 * CPU that is in panels of 64 rows of W (kernels/cpu/panel.h). The embedding table is a weight too:
 * the embedding of token `id` is row `id` of W.
 *
 * Files with quantised weights may have rows of one map in several types: then `next` is the weight
 * with the rows below these, which has a `next` of its own or none. A product with the first of
 * them is a product with all.
 */
struct sb_weight {
    int32_t n_out, n_in; /* rows of this weight alone, without those of next */
    enum sb_dtype dtype; /* of the elements in the device's memory */
    /* n_out / 2 if the rows are those of a gate by silu above those of up, for the operation
     * `gated`; 0 if they are not, or are not all in this weight. */
    int32_t gated;
    int32_t is_of_expert; /* 1: only `mix` multiplies by it */
    size_t bytes;
    void *data; /* dev */
    struct sb_weight *next;
};

/* The matrices of a gated MLP, whole or one expert of a mixture. */
struct sb_mlp {
    struct sb_weight gate_up; /* [2 * inter, hidden]: gate, then up */
    struct sb_weight down;    /* [hidden, inter] */
};

/*
 * A span: consecutive prompt tokens of one sequence, whose attention a backend computes by other
 * means than that of other tokens. The backend sets the number of tokens in a span (calibrate), and
 * a span begins at a position that is a multiple of it. Whether a token is in a span follows from
 * the prompt's length and the token's position and from nothing else, so that the other means do
 * not break row invariance. The struct is in host memory. A pass with spans is never recorded.
 */
struct sb_span {
    int32_t first;      /* index of its first token in the pass, which has the others behind it */
    int32_t pos;        /* position of that token */
    int64_t base;       /* of the sequence, as in struct sb_pass */
    int32_t cap, start; /* likewise */
};

/* The query tokens of one pass, of one or more sequences. Pointers are dev, and arrays have an
 * entry for each token, unless another length is stated. */
struct sb_pass {
    int32_t n_tokens;   /* the rows, m, of most operations */
    int32_t n_seqs;     /* sequences that the tokens belong to */
    int32_t n_out;      /* tokens whose logits are wanted */
    int32_t max_len;    /* no position in the pass is beyond max_len - 1 */
    const int32_t *ids; /* a buffer of token ids, in which token t has ids[id_at[t]] */
    const int32_t *id_at;
    const int32_t *pos;   /* position in the token's own sequence, from 0 */
    const int32_t *seq;   /* the token's sequence: index into base, cap and start */
    const int64_t *base;  /* [n_seqs] elements before the sequence's slot, in every plane */
    const int32_t *cap;   /* [n_seqs] columns of the slot */
    const int32_t *start; /* [n_seqs] column of position 0 */
    const int32_t *out;   /* [n_out] indices of the tokens whose logits are wanted */
    int32_t n_spans;
    const struct sb_span *spans; /* [n_spans] host, in the order of their tokens */
    /* 1 if no two sequences that have tokens have the same slot, and each has its tokens side by
     * side at consecutive positions. Padding tokens, all of one more sequence, need not: what they
     * write and read is nobody's. */
    int32_t is_apart;
};

/* What a gate g does to up:
 *
 *     silu       g / (1 + e^-g) * up
 *     gelu       g / (1 + e^-u) * up, u = sqrt(8 / pi) (g + 0.044715 g^3): the approximation of
 *                GELU by tanh (Hendrycks and Gimpel 2016, arXiv:1606.08415)
 *     clamped    g / (1 + e^-1.702 g) * (up + 1), after g was limited to 7 and up to -7 .. 7
 *                (gpt-oss)
 */
enum sb_gate { SB_GATE_SILU, SB_GATE_GELU, SB_GATE_CLAMPED };

/* sqrt(8 / pi), and that times 0.044715. */
#define SB_GELU_FIRST 1.5957691216f
#define SB_GELU_THIRD 0.0713548163f

/* The numbers of the clamped gate. */
#define SB_CLAMPED_LIMIT 7.0f
#define SB_CLAMPED_SLOPE 1.702f

/* What rope_kv and attend need to know of a layer: shape, head norms, rotary tables, and the planes
 * of the layer's cache. */
struct sb_attention {
    int32_t heads, kv_heads, head_dim;
    int32_t rot_dim;              /* the first rot_dim elements of a head are rotated; even */
    int32_t rot_interleaved;      /* 0: pairs (i, i + rot_dim/2); 1: pairs (2i, 2i + 1) */
    int32_t window;               /* a token attends to so many positions, its own the last of them;
                                     0: to all up to its own */
    float eps;                    /* of the head norms */
    float scale;                  /* factor of the scores */
    const float *q_norm, *k_norm; /* dev [head_dim], or NULL: heads are not normed */
    const float *sinks;           /* dev [heads], or NULL. A head's is a score that its softmax has
                                     beside those of the keys, of a value that is zero */
    const float *cos, *sin;       /* dev [positions, rot_dim / 2] */
    void *k, *v;                  /* dev planes */
    /* The soft cap (see soft_cap) of scores, once they are scaled; 0: they are not. It is the last,
     * so that kernels that know nothing of it keep the code by which they were timed. */
    float score_cap;
};

/* What logits say of experts: sigmoid(x) = 1 / (1 + e^-x). */
enum sb_scoring { SB_SCORE_SOFTMAX, SB_SCORE_SIGMOID };

/*
 * A mixture of experts: for each row h of m, the MLPs of the `chosen` experts with the largest
 * ranks, of equal ones those of the lowest index, each with a weight; and, if there is a shared
 * one, that of the expert behind all others, which every row goes to with the weight 1.
 *
 *                softmax                           sigmoid
 *     p[e]       e^(logits[e] - the largest)       sigmoid(logits[e])
 *     rank[e]    logits[e]                         p[e] + bias[e], or p[e] where bias is NULL
 *     w[e]       p[e] / sum of p * scale           p[e] / (sum of p + 1e-20) * scale
 *                                                  or p[e] * scale unless it renormalises
 *
 *     y          sum of w[e] * mlp[e](h)           over the chosen ones, then the shared one
 *
 * The sum of p is over the chosen experts, or with softmax over all unless it renormalises. Sums
 * are in ascending order of e and begin with 0, and products are rounded before they are added. A
 * rank that is NaN counts as -infinity. Pointers are dev, unless they say host.
 */
struct sb_mixture {
    int32_t m, hidden, inter;
    int32_t n_experts, chosen, has_shared;
    enum sb_scoring scoring;
    int32_t renormalises;
    float scale;
    enum sb_gate gate;
    const struct sb_mlp *experts; /* host [n_experts + has_shared] */
    /* Biases of the experts' maps, [n_experts + has_shared, 2 * inter] and [.., hidden]; NULL: they
     * have none. */
    const float *gate_up_bias, *down_bias;
    const float *bias; /* [n_experts], or NULL */
    float *logits;     /* [m, n_experts]; with sigmoid it becomes p */
    const void *h;     /* [m] gemm inputs of hidden columns */
    float *y;          /* [m, hidden] */
    /* Memory that a backend may use as it likes, of m * (chosen + has_shared) rows each: gemm
     * inputs of hidden (not where mix_gathers) and of inter columns, and floats of 2 * inter and of
     * hidden. */
    void *rows, *act;
    float *gate_up, *out;
};

/*
 * One norm of the residual stream x, before which y, the output of a block, is added to x. Row i of
 * h is made from row r = index[i] of x and y, or from row r = i where index is NULL:
 *
 *     x[r] += y_weight ? rms(y[r]) * y_weight : y[r]        where y is not NULL
 *     h[i]  = rms(x[r]) * weight                            rms(v) = v / sqrt(mean(v^2) + eps)
 *
 * All pointers dev.
 */
struct sb_norm {
    int32_t m, n; /* rows of h; columns of every row */
    float eps;
    void *h;                   /* [m] gemm inputs */
    float *x;                  /* [rows, n] */
    const float *y, *y_weight; /* [rows, n] and [n], or NULL */
    const float *weight;       /* [n] */
    const int32_t *index;      /* [m] rows, each at most once; or NULL */
};

/* Ids of a row that bias and penalties may change together: a kernel keeps a list of them. */
enum { SB_CHANGED_MAX = 4096 };

/*
 * How the tokens of one row of a round are chosen where the greedy rule alone does not. For a
 * token at position p, after the row's committed tokens and the proposals that come before p:
 *
 *     1. s = logits        of ids below the limit; the others take no part
 *     2. mask              s[id] = -infinity where the mask's bit is 0
 *     3. bans              s[id] = -infinity for each banned id, if p < ban_before
 *     4. bias              s[id] += bias[i] for each i
 *     5. penalties         for each id that is among the tokens that count, n of them generated:
 *                          s[id] = s[id] > 0 ? s[id] / repetition : s[id] * repetition
 *                          s[id] -= n * frequency + presence          if n > 0
 *     6. temperature       if it is 0, the largest s is chosen. Else
 *                          depth[id] = (largest s - s[id]) * (1 / temperature, but at least the
 *                          smallest normal float), and
 *     7. filters           top_k, top_p, typical_p and min_p, in this order, each on what the one
 *                          before it has left (kernels/cpu/sample.h defines them)
 *     8. choice            the largest noise(seed, p, id) - depth[id] of what is left
 *                          (kernels/cpu/noise.h)
 *
 * Ties go to the lowest id everywhere. Position p is counted from the first token of the prompt.
 * All of it is a function of the row alone, in float, each operation rounded. A largest s of
 * +infinity counts as the largest float. An infinite depth is not allowed. Ids in the lists that
 * are not below the limit have no effect.
 *
 * Numbers are finite, repetition is more than 0, temperature is 0 or at least the smallest normal
 * float, and top_p, typical_p and min_p are from 0 to 1. At most SB_CHANGED_MAX distinct ids may
 * come in a row's bias and among the tokens that count.
 */
struct sb_sampler {
    uint64_t seed;
    float temperature;             /* 0: greedy */
    float top_p, typical_p, min_p; /* 1, 1 and 0: off */
    float repetition;              /* 1: off */
    float presence, frequency;     /* 0: off */
    int32_t top_k;                 /* 0: off */
    int32_t window;                /* penalties count the last so many tokens before p */
    int32_t n_prompt;              /* positions below are the prompt's, which presence and
                                      frequency do not count, */
    int32_t spares_prompt;         /* and repetition neither if this is 1 */
    int32_t n_tokens;              /* committed tokens of the row */
    int32_t n_listed, listed_at;   /* the last n_listed of them are lists[listed_at ..]; 0: no
                                      penalty is in force */
    int32_t n_bias, bias_at;       /* lists[bias_at ..] are ids, and then as many floats */
    int32_t n_bans, bans_at;       /* lists[bans_at ..] are ids */
    int32_t ban_before;
    int32_t mask_at;     /* where the row's masks begin, in words; -1: it has none */
    int32_t greedy_from; /* the first position for which nothing of all this is in force */
};

/* The samplers of a round's rows, and what they point to. All pointers dev. */
struct sb_samplers {
    const struct sb_sampler *rows; /* one for each row of the round */
    const int32_t *lists;
    /* Bits, 1 for each id that is allowed: id i in bit i % 32 of word i / 32. Each position of a
     * row that is selected for has mask_words of them, the one after its last committed token
     * first. */
    const uint32_t *masks;
    int32_t mask_words;
    int32_t row_stride;    /* places of a row in `tokens` */
    const int32_t *tokens; /* [rows, row_stride]: last committed token | proposals */
    const int32_t *id_at;  /* of the pass: the place in `tokens` of each token */
    const int32_t *pos;    /* of the pass: the position of each token */
    const int32_t *out;    /* [m] of the pass: the token that row i of the logits belongs to */
};

enum {
    SB_PICK_NAN = -1, /* instead of an id: some logit is NaN, */
    SB_PICK_NONE = -2 /* or nothing may be chosen */
};

/* What is told of one place of a selection beside its choice. */
struct sb_want {
    int32_t given; /* an id whose log-probability is wanted, and nothing is chosen; -1: none */
    int32_t n_top; /* alternatives that are wanted: 0 .. SB_TOP_MAX */
    int32_t is_filtered; /* 1: log-probabilities are of what a sampler leaves, see below */
};

/* Wants, and where the alternatives go that they ask for. All pointers dev. */
struct sb_scores {
    const struct sb_want *wants; /* by place */
    int32_t stride;              /* of a place in the arrays below; no want has a larger n_top */
    int32_t *ids;                /* [places, stride] */
    float *logprobs;
};

enum { SB_TOP_MAX = 32 };

/*
 * The one rule by which tokens are selected, for m rows of logits. All pointers dev. The results of
 * row i go to the places at[i] of three arrays:
 *
 *     ids        the token that its sampler chooses; without samplers, and for greedy rows, the
 *                largest of logits[i][0 .. limit - 1], ties to the lowest id. Or SB_PICK_*
 *     logprob    the natural logarithm of that id's probability among [0, limit), by the logits as
 *                they are
 *     margin     the largest logit minus the second largest; infinity when limit is 1
 *
 * Where `scores` has a want for the place:
 *
 *     given      ids and margin are not written, and logprob is that of the given id
 *     n_top      scores->ids and ->logprobs become the n_top most probable ids, the largest logit
 *                first, of equal ones the lowest id first; and their log-probabilities. Where fewer
 *                ids have a probability above 0, the rest is -1 and -infinity. If some logit is
 *                NaN, all are -1 and NaN
 *     filtered   log-probabilities and alternatives are by the distribution that the row's sampler
 *                draws from, behind the filters (kernels/cpu/logprobs.h defines it); if its
 *                temperature is 0 there are no filters, and the temperature counts as 1
 */
struct sb_select {
    int32_t m, stride, limit;
    float *logits;     /* [m, stride]; a sampler may change those of its row */
    const int32_t *at; /* [m] */
    int32_t *ids;
    float *logprob, *margin;            /* either may be NULL: not wanted */
    const struct sb_samplers *samplers; /* host; NULL: all rows are greedy */
    const struct sb_scores *scores;     /* host; NULL: no place has a want */
};

/* Moves of cached columns. For each i in [0, n), in every plane and head of the cache, len[i]
 * columns are copied: from column from[i] on of one slot, to column to[i] on of another or the
 * same. A slot is given by its base and cap, as in struct sb_pass. No move reads what another one
 * of the same call writes, and no two write the same column. All arrays dev [n]. */
struct sb_move {
    int32_t n, n_planes, kv_heads, head_dim;
    int64_t plane_stride; /* elements from one plane to the next */
    const int64_t *from_base, *to_base;
    const int32_t *from_cap, *to_cap;
    const int32_t *from, *to, *len;
};

/* The largest sizes an exec will meet. exec_create takes scratch memory for them, so that no
 * operation has to. */
struct sb_exec_limits {
    int32_t max_tokens; /* rows of any operation */
    int32_t max_width;  /* columns of any gemm input */
    int32_t max_len;    /* positions of any sequence */
    int32_t max_heads;  /* query heads */
    int32_t max_head_dim;
    int32_t max_expert_width;        /* columns of any gemm input of a mixture's experts; 0 where
                                        there are none, as the two behind it */
    int32_t max_experts, max_chosen; /* of a mixture, and of a row, both with the shared one */
    /* Where passes have spans, slots have span_cap >> i columns, for some i of 0 .. span_halvings.
     * span_cap is 0 where they have none. */
    int32_t span_cap, span_halvings;
    /* Layers of the model where the exec is a draft's, else 0. A draft's results decide what is
     * proposed and never a token, so a backend may compute them in any way. A model may be a draft
     * in one pool and the target of another. */
    int32_t draft_layers;
};

/* A draft model as its steps run it (engine/forward.c has the formulas): what does not change from
 * step to step. Pointers to vectors are dev. */
struct sb_step_layer {
    const struct sb_weight *qkv, *o, *gate_up, *down;
    const float *qkv_bias, *o_bias, *gate_up_bias, *down_bias; /* or NULL */
    const float *attn_norm, *ffn_norm;
    const float *post_attn_norm, *post_ffn_norm; /* or NULL */
    struct sb_attention attention;
};
struct sb_step_model {
    int32_t n_layers, hidden, inter;
    float eps;
    float embed_scale;
    enum sb_gate gate;
    const struct sb_weight *embed, *head;
    const float *final_norm;
    float *x, *qkv;       /* dev: memory for these activations */
    void *attended, *act; /* likewise, of the form of gemm inputs */
};

/* A step: one pass of a draft, of whose sequences none has more than two tokens in it, and they
 * stand together; and where the proposals go: that after token pass.out[i] to ids[select_at[i]]. */
struct sb_draft_step {
    struct sb_pass pass;
    const int32_t *select_at; /* dev [pass.n_out] */
};

enum { SB_DRAFT_STEPS_MAX = 8 }; /* of one call */

/* The numbers of a model that shape its attention. */
struct sb_geometry {
    int32_t heads, kv_heads, head_dim, context;
    int32_t window; /* of some layer, or 0 */
    int32_t has_sinks, caps_scores;
};

struct sb_device_options {
    int32_t compute; /* SPECBATCH_COMPUTE_* */
    int32_t simd;    /* SPECBATCH_SIMD_*, which only the CPU heeds */
    const struct sb_log *log;
    int32_t index;         /* which device of the backend's kind */
    int32_t kv;            /* SPECBATCH_KV_*; a GPU refuses all but the type that AUTO is there */
    int32_t prefill;       /* SPECBATCH_PREFILL_*, which a CPU does not heed */
    const char *plan_file; /* for timings, or NULL; there until the model is open */
};

enum { SB_FILL_UNIT = 16 }; /* see weight_fill */

enum { SB_AGAIN = 1 }; /* what record_end may return beside status codes */

/*
 * The table of one backend. Functions that return int32_t return SPECBATCH_OK or one of the status
 * codes that their comment names.
 */
struct sb_backend {
    const char *name;
    /* 1 if a round is worth recording, that is, if replaying one is faster than issuing it. The
     * engine then calls record_begin and record_end, and gives every round of as many rows the same
     * shape by adding tokens that write to a slot nobody reads. */
    int32_t records;
    int32_t mix_gathers; /* 1: mix needs no `rows`, as its products find rows where they are */

    /* Opens the device for one model. E_NO_DEVICE, E_UNSUPPORTED (the processor lacks the SIMD
     * level that was asked for, or the GPU is too old), E_NOMEM. */
    int32_t (*device_open)(struct sb_device **out, const struct sb_mem *mem,
                           const struct sb_device_options *options);
    void (*device_close)(struct sb_device *device);
    /* Called once the weights are loaded, unless it is NULL. The device then chooses what of its
     * numerics class is still open and tests the choice on the model's real shapes. *span becomes
     * the number of tokens of a span, or 0 if passes shall have no spans. E_NOMEM, E_DEVICE. */
    int32_t (*calibrate)(int32_t *span, struct sb_device *device,
                         const struct sb_geometry *geometry);
    /* The numerics class in words, for the fingerprint. Complete once calibrate has run. */
    const char *(*device_class)(const struct sb_device *device);

    /* Bytes of one row of gemm inputs, of n columns. */
    size_t (*input_bytes)(const struct sb_device *device, int32_t n);
    /* Bytes of one element of a KV cache. */
    size_t (*cache_bytes)(const struct sb_device *device);

    /* The bytes that exec_create will take. */
    size_t (*exec_bytes)(const struct sb_device *device, int32_t n_threads,
                         const struct sb_exec_limits *limits);
    /* n_threads is at least 1, and GPUs ignore it. sibling is NULL or an exec that outlives the new
     * one. The new one shares its sibling's threads or stream, so that the work of both runs in the
     * order in which it is issued. E_NOMEM, E_DEVICE. */
    int32_t (*exec_create)(struct sb_exec **out, struct sb_device *device, const struct sb_mem *mem,
                           int32_t n_threads, const struct sb_exec_limits *limits,
                           struct sb_exec *sibling);
    void (*exec_free)(struct sb_exec *exec);
    /* Waits until all that was issued has run, and drops a recording that was begun and not ended.
     * E_DEVICE, which every later call then returns too. */
    int32_t (*exec_sync)(struct sb_exec *exec);

    /*
     * Recording. The operations of a round, uploads and downloads among them, are issued between
     * record_begin and record_end. `key` names the shape of the round.
     *
     *   record_begin returns 1   This key is on record. The caller issues nothing, and record_end
     *                            replays what was recorded.
     *   record_begin returns 0   The caller issues the operations, which the backend runs at once
     *                            or records. After record_end they have run or will.
     *
     * A replay repeats the same operations on the same addresses. So the host memory of uploads and
     * downloads must come from host_alloc and stay where it was.
     *
     * record_end returns SB_AGAIN if the round could not be recorded and has not run. The caller
     * begins anew under the same key, which will not be recorded this time. If issuing fails half
     * way, the caller does not call record_end but exec_sync, which drops the recording.
     *
     * *repeats tells whoever measures rounds whether this one is typical. It is 1 if the next round
     * under this key will take as long: this one is replayed, or issued as all later ones will be.
     * It is 0 if this one is issued or recorded and later ones will be replayed.
     */
    int32_t (*record_begin)(struct sb_exec *exec, uint64_t key, int32_t *repeats);
    int32_t (*record_end)(struct sb_exec *exec); /* SB_AGAIN, E_DEVICE, E_NOMEM */

    /* Host memory from which and to which copies are fastest, filled with zeros. E_NOMEM. */
    int32_t (*host_alloc)(void **out, struct sb_device *device, const struct sb_mem *mem,
                          size_t bytes);
    void (*host_free)(struct sb_device *device, const struct sb_mem *mem, void *host);
    /* Device memory, filled with zeros. E_NOMEM. */
    int32_t (*alloc)(void **out, struct sb_device *device, const struct sb_mem *mem, size_t bytes);
    void (*free)(struct sb_device *device, const struct sb_mem *mem, void *dev);
    /* Copies bytes to and from the device. With exec NULL, as in model loading, the copy is
     * complete on return. Otherwise it is queued like an operation: until the next exec_sync, the
     * host memory of an upload must stay as it is, and that of a download may not be read.
     * E_DEVICE. */
    int32_t (*upload)(struct sb_exec *exec, void *dev, const void *host, size_t bytes);
    int32_t (*download)(struct sb_exec *exec, void *host, const void *dev, size_t bytes);

    /* Makes a weight that is yet to be filled, of which *out says n_out, n_in, gated and
     * is_of_expert. Its elements get the type in which the device's compute class holds elements of
     * `dtype`. E_NOMEM, E_UNSUPPORTED, E_DEVICE. */
    int32_t (*weight_create)(struct sb_weight *out, struct sb_device *device,
                             const struct sb_mem *mem, enum sb_dtype dtype);
    /* Fills rows [first, first + n) of W from host memory, [n, n_in] of type `dtype`. Rows may come
     * in any order, each of them once. Several threads may fill a weight at once, if no two of them
     * have rows of the same SB_FILL_UNIT ones, which are counted from row 0. No function of the
     * host is called. E_NOMEM, E_UNSUPPORTED, E_DEVICE. */
    int32_t (*weight_fill)(struct sb_weight *weight, struct sb_device *device, int32_t first,
                           int32_t n, const void *rows, enum sb_dtype dtype);
    void (*weight_free)(struct sb_weight *weight, struct sb_device *device,
                        const struct sb_mem *mem);

    /* ------------------------------------------------------------------ operations */

    /* Embeds the tokens of a pass: x[t] is row ids[id_at[t]] of the table times `scale`, or zeros
     * if that id is not in [0, n_out). x dev [n_tokens, n_in] */
    void (*embed)(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                  const struct sb_pass *pass);
    /* Adds a block's output to the residual stream and norms it, as struct sb_norm says. */
    void (*norm)(struct sb_exec *exec, const struct sb_norm *norm);
    /* Multiplies by a matrix: y[r][o] = sum over k of x[r][k] * W[o][k], then + bias[o]. The
     * compute class and the type of the weights fix the order of the sum (docs/numerics.md), the
     * same order for every row. n_out counts the rows of W and of all that follow it by `next`. x
     * dev [m] gemm inputs; y dev [m, n_out]; bias dev [n_out] or NULL */
    void (*gemm)(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                 const float *bias, int32_t m);
    /* Norms the heads of q and k where the layer has head norms, rotates them by the token's
     * position, and writes k and v to the cache. q stays in qkv for attend. A row of qkv has the q
     * heads, then the k heads, then the v heads. attend follows with the same qkv, attention and
     * pass, and a backend may leave all of this to it.
     * qkv dev [n_tokens, (heads + 2 * kv_heads) * head_dim] */
    void (*rope_kv)(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                    const struct sb_pass *pass);
    /* Causal attention: each token attends to the positions 0..pos of its own sequence, or to the
     * last `window` of them, and to its head's sink. Their keys and values are read from the cache,
     * where rope_kv has put those of this pass. Keys are taken in tiles that are counted from
     * position 0.
     * qkv as rope_kv left it; y dev [n_tokens] gemm inputs of heads * head_dim columns */
    void (*attend)(struct sb_exec *exec, void *y, const float *qkv,
                   const struct sb_attention *attention, const struct sb_pass *pass);
    /* Multiplies by a matrix of two halves, gate and up, as gemm does, and gates (enum sb_gate).
     * x dev [m] gemm inputs; y dev [m] gemm inputs of n columns; bias dev [2 * n] or NULL; gate_up
     * dev [m, 2 * n], which a backend may use as it likes */
    void (*gated)(struct sb_exec *exec, void *y, float *gate_up, const void *x,
                  const struct sb_weight *weight, const float *bias, enum sb_gate gate, int32_t m,
                  int32_t n);
    /* Computes a mixture, as struct sb_mixture says. */
    void (*mix)(struct sb_exec *exec, const struct sb_mixture *mixture);
    /* A soft cap c turns x into c * tanh(x / c) (Bello et al. 2016, arXiv:1611.09940): what is much
     * smaller than c stays nearly as it is, and nothing gets larger than c. Caps n numbers by
     * `cap`, which is above 0. x dev */
    void (*soft_cap)(struct sb_exec *exec, float *x, float cap, int64_t n);
    /* Selects tokens from their logits, as struct sb_select says. */
    void (*select)(struct sb_exec *exec, const struct sb_select *select);

    /*
     * Greedy acceptance (the paper's Algorithm 1, lines 8-15), for n_rows rows of a round. `tokens`
     * and `picks` are dev [n_rows, stride]; n_draft and n_accept are dev [n_rows].
     *
     *     tokens[b]   last token | proposal 1 .. proposal n_draft[b]
     *     picks[b]    the token that the target selects after each of these
     *
     * n_accept[b] is the number of leading proposals that equal the pick one place before them. The
     * new tokens of the row are picks[b][0 .. n_accept[b]], that is the accepted proposals and then
     * the bonus.
     */
    void (*accept)(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                   const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept);
    /*
     * Steps of a draft as one operation, for a backend that has it; both are NULL where it has not.
     *
     * step_prepare is called once for a draft's exec, of a model without mixtures and without a
     * soft cap of its logits. The layers, host [n_layers], are read during the call. E_DEVICE.
     * steps queues n <= SB_DRAFT_STEPS_MAX steps, one after the other: each embeds its tokens, runs
     * the model, and writes the most probable id below `limit` for each token of pass.out, as a
     * greedy select would. With `logits` n is 1, and the step writes the logits of these tokens for
     * the ids below `limit` instead, for a select that follows: dev [pass.n_out, vocab]. It only
     * reads ids then. It returns 0, and has queued nothing, where these steps do not suit it: the
     * caller issues their operations one by one instead. The answer depends on the sizes alone. The
     * proposals need not be those of the single operations to the last bit.
     */
    int32_t (*step_prepare)(struct sb_exec *exec, const struct sb_step_model *model,
                            const struct sb_step_layer *layers);
    int32_t (*steps)(struct sb_exec *exec, const struct sb_draft_step *steps, int32_t n,
                     int32_t limit, int32_t *ids, float *logits);
    /* Moves cached columns, as struct sb_move says. Inside one slot the new columns may overlap the
     * old ones on either side. `planes` is dev, the first of n_planes planes. */
    void (*move)(struct sb_exec *exec, void *planes, const struct sb_move *move);
};

/* The CPU backend, which every build has. */
const struct sb_backend *sb_backend_cpu(void);
/* Whether this CPU has a matrix unit that multiplies bf16, which this process may use at the level
 * SPECBATCH_SIMD_*. It asks the operating system for the unit (port.h), so ask it only when a model
 * is about to be opened that would use it. */
int sb_cpu_has_matrix_unit(int32_t simd);

#endif
