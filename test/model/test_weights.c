/*
 * Quantised weights in memory: those of a GGUF file, of several types in one layer, and those that
 * are quantised when a checkpoint is opened. Each matrix is read back by products with unit
 * vectors, which in class F32 give its columns exactly, and compared with sb_quant_read.
 */
#include "model/model.h"

#include "backend/quantiser.h"
#include "quant.h"
#include "sbtest.h"
#include "support/gguf_convert.h"

enum { HIDDEN = 256, HEADS = 2, HEAD_DIM = 128, VOCAB = 70, PARTS = 3 };

/* The numbers by which GGUF files name types. */
static const uint32_t numbers[SB_DTYPES] = {
    [SB_F32] = GGUF_F32, [SB_BF16] = GGUF_BF16, [SB_F16] = GGUF_F16,
    [SB_Q8_0] = 8,       [SB_Q4_0] = GGUF_Q4_0, [SB_Q4_K] = 12,
    [SB_Q5_K] = 13,      [SB_Q6_K] = 14,        [SB_MXFP4] = GGUF_MXFP4,
};

/* The tensors of a layer of 256 columns each, in the order in which a model has them. */
struct tensor {
    const char *name;
    int32_t rows;
    enum sb_dtype dtype;
    unsigned char *data; /* as in transformers */
};
struct made {
    struct tensor embed, q, k, v, o, gate, up, down;
};

/* Quantised rows of values around zero. */
static unsigned char *random_rows(int32_t rows, enum sb_dtype dtype, uint32_t state)
{
    const size_t row = sb_dtype_row_bytes(dtype, HIDDEN), n = (size_t)rows * row;
    const size_t block = sb_dtype_is_quantised(dtype) ? (size_t)sb_quant_of(dtype)->bytes : 0;
    unsigned char *data = malloc(n);

    if (!data)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (unsigned char)(state >> 24);
        if (!block && i % 2 == 1)
            data[i] = (unsigned char)(0x38 | (data[i] & 0x83)); /* neither huge nor NaN */
    }
    for (size_t at = 0; block && at < n; at += block) {
        unsigned char *d = data + at + (dtype == SB_Q6_K ? 208 : 0);
        if (dtype == SB_MXFP4)
            d[0] = 120; /* 2^-7 */
        else
            d[1] = 0x1c; /* a small f16 */
        if (dtype == SB_Q4_K || dtype == SB_Q5_K)
            d[3] = 0x18;
    }
    return data;
}

static struct made make_tensors(enum sb_dtype q, enum sb_dtype k, enum sb_dtype v, enum sb_dtype up)
{
    struct made m = {
        .embed = {"token_embd.weight", VOCAB, SB_Q6_K, NULL},
        .q = {"blk.0.attn_q.weight", HEADS * HEAD_DIM, q, NULL},
        .k = {"blk.0.attn_k.weight", HEAD_DIM, k, NULL},
        .v = {"blk.0.attn_v.weight", HEAD_DIM, v, NULL},
        .o = {"blk.0.attn_output.weight", HIDDEN, SB_Q5_K, NULL},
        .gate = {"blk.0.ffn_gate.weight", HIDDEN, SB_Q4_0, NULL},
        .up = {"blk.0.ffn_up.weight", HIDDEN, up, NULL},
        .down = {"blk.0.ffn_down.weight", HIDDEN, SB_Q8_0, NULL},
    };
    struct tensor *const all[] = {&m.embed, &m.q, &m.k, &m.v, &m.o, &m.gate, &m.up, &m.down};

    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->data = random_rows(all[i]->rows, all[i]->dtype, i);
    return m;
}

static void free_tensors(struct made *m)
{
    unsigned char *const all[] = {m->embed.data, m->q.data,    m->k.data,  m->v.data,
                                  m->o.data,     m->gate.data, m->up.data, m->down.data};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void add_tensor(struct gguf_writer *w, const struct tensor *t, int rotated)
{
    const size_t row = sb_dtype_row_bytes(t->dtype, HIDDEN);
    const int64_t shape[] = {t->rows, HIDDEN};
    unsigned char *data = malloc((size_t)t->rows * row);

    if (!data)
        exit(1);
    for (int32_t r = 0; r < t->rows; r++) {
        const int32_t head = r / HEAD_DIM * HEAD_DIM, in = r % HEAD_DIM, half = HEAD_DIM / 2;
        const int32_t to = rotated ? head + 2 * (in % half) + in / half : r;
        memcpy(data + (size_t)to * row, t->data + (size_t)r * row, row);
    }
    gguf_tensor(w, t->name, 2, shape, numbers[t->dtype], data, (size_t)t->rows * row);
    free(data);
}

/* A Llama of one layer with these tensors, whose q and k llama.cpp stores in another order. */
static struct gguf_writer file_of(const struct made *m, uint32_t norm_type)
{
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"llama.block_count", 1},          {"llama.context_length", 64},
                {"llama.embedding_length", 256},   {"llama.feed_forward_length", 256},
                {"llama.attention.head_count", 2}, {"llama.attention.head_count_kv", 1},
                {"llama.vocab_size", VOCAB}};
    static const char *const norms[] = {"output_norm.weight", "blk.0.attn_norm.weight",
                                        "blk.0.ffn_norm.weight"};
    static const float ones[HIDDEN];
    const int64_t hidden = HIDDEN;
    struct gguf_writer w = {.alignment = 32};

    gguf_key_text(&w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        gguf_key_u32(&w, keys[i].name, keys[i].value);
    gguf_key_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    add_tensor(&w, &m->embed, 0);
    add_tensor(&w, &m->q, 1);
    add_tensor(&w, &m->k, 1);
    add_tensor(&w, &m->v, 0);
    add_tensor(&w, &m->o, 0);
    add_tensor(&w, &m->gate, 0);
    add_tensor(&w, &m->up, 0);
    add_tensor(&w, &m->down, 0);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        gguf_tensor(&w, norms[i], 1, &hidden, norm_type, ones,
                    norm_type == GGUF_F32 ? sizeof ones : HIDDEN / 32 * 34);
    return w;
}

static int32_t open_made(struct specbatch_model **model, struct gguf_writer *w,
                         const specbatch_model_options *options)
{
    const struct test_dir dir = test_dir_make();
    char path[128];
    int32_t rc;

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    gguf_write(w, &dir, "model.gguf");
    rc = sb_model_open(model, path, options);
    test_dir_remove(&dir);
    return rc;
}

/* --------------------------------------------------------------------- reading it back */

/* Rows of a weight and of those behind it. */
static int32_t rows_of(const struct sb_weight *w)
{
    return w->n_out + (w->next ? rows_of(w->next) : 0);
}

/* Whether the parts, one below the other, are what a weight holds in class F32. */
static int holds(const struct specbatch_model *m, const struct sb_weight *w,
                 const struct tensor *const parts[PARTS])
{
    const int32_t rows = rows_of(w);
    const struct sb_exec_limits limits = {
        .max_tokens = 1, .max_width = 512, .max_len = 1, .max_heads = 1, .max_head_dim = 8};
    float *values = calloc((size_t)rows * HIDDEN, sizeof *values), x[HIDDEN] = {0}, y[1024];
    struct sb_exec *exec = NULL;
    int32_t r = 0;
    int good = m->backend->exec_create(&exec, m->device, &test_mem, 1, &limits, NULL) ==
               SPECBATCH_OK;

    for (int p = 0; p < PARTS && parts[p]; p++)
        for (int32_t i = 0; i < parts[p]->rows; i++, r++)
            sb_convert(values + (size_t)r * HIDDEN, SB_F32,
                       parts[p]->data + (size_t)i * sb_dtype_row_bytes(parts[p]->dtype, HIDDEN),
                       parts[p]->dtype, HIDDEN);
    good &= r == rows;
    for (int32_t k = 0; good && k < HIDDEN; k++) {
        x[k] = 1.0f;
        m->backend->gemm(exec, y, x, w, NULL, 1);
        x[k] = 0.0f;
        for (r = 0; r < rows; r++)
            good &= y[r] == values[(size_t)r * HIDDEN + (size_t)k];
    }
    if (exec)
        m->backend->exec_free(exec);
    free(values);
    return good;
}

static int holds_all(const struct specbatch_model *m, const struct made *t)
{
    const struct sb_layer *layer = &m->layers[0];

    return holds(m, &m->embed, (const struct tensor *[PARTS]){&t->embed}) &&
           holds(m, &m->head, (const struct tensor *[PARTS]){&t->embed}) &&
           holds(m, &layer->qkv, (const struct tensor *[PARTS]){&t->q, &t->k, &t->v}) &&
           holds(m, &layer->o, (const struct tensor *[PARTS]){&t->o}) &&
           holds(m, &layer->mlp.gate_up, (const struct tensor *[PARTS]){&t->gate, &t->up}) &&
           holds(m, &layer->mlp.down, (const struct tensor *[PARTS]){&t->down});
}

/* ------------------------------------------------------------------------------- tests */

/* Types of q, k and v in every arrangement of runs. */
static void every_type_arrives(void)
{
    static const struct {
        enum sb_dtype q, k, v, up;
        int runs;
        const char *types;
    } cases[] = {
        {SB_Q4_K, SB_Q4_K, SB_Q6_K, SB_Q4_0, 2, " q8_0+q4_0+q4_k+q5_k+q6_k"},
        {SB_Q5_K, SB_Q4_0, SB_Q5_K, SB_Q4_K, 3, " q8_0+q4_0+q4_k+q5_k+q6_k"},
        {SB_Q8_0, SB_Q6_K, SB_Q6_K, SB_Q8_0, 2, " q8_0+q4_0+q5_k+q6_k"},
        {SB_Q4_0, SB_Q4_0, SB_Q4_0, SB_BF16, 1, " bf16+q8_0+q4_0+q5_k+q6_k"},
        {SB_F16, SB_BF16, SB_Q8_0, SB_Q4_0, 3, " bf16+f16+q8_0+q4_0+q5_k+q6_k"},
        {SB_MXFP4, SB_MXFP4, SB_Q4_0, SB_MXFP4, 2, " q8_0+q4_0+q5_k+q6_k+mxfp4"},
    };
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.compute = SPECBATCH_COMPUTE_F32;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made tensors = make_tensors(cases[i].q, cases[i].k, cases[i].v, cases[i].up);
        struct gguf_writer w = file_of(&tensors, GGUF_F32);
        struct specbatch_model *m = NULL;
        int runs = 0;
        CHECK_OK(open_made(&m, &w, &options));
        for (const struct sb_weight *part = &m->layers[0].qkv; part; part = part->next)
            runs++;
        CHECK_INT(runs, cases[i].runs);
        CHECK(holds_all(m, &tensors));
        CHECK(strstr(m->fingerprint, cases[i].types) != NULL);
        sb_model_release(m);
        free_tensors(&tensors);
    }
}

static unsigned char *quantised(const struct tensor *t, enum sb_dtype dtype)
{
    const size_t row = sb_dtype_row_bytes(dtype, HIDDEN);
    unsigned char *data = malloc((size_t)t->rows * row);

    if (!data)
        exit(1);
    sb_convert_rows(data, dtype, t->data, t->dtype, (size_t)t->rows, HIDDEN);
    return data;
}

/* The option quantises what is not quantised yet, the embedding to 8 bits, and the digest is that
 * of the file. */
static void the_option_quantises(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct made tensors = make_tensors(SB_BF16, SB_F16, SB_Q6_K, SB_BF16), expected;
    char digest[SB_DIGEST_TEXT] = "";

    options.compute = SPECBATCH_COMPUTE_F32;
    free(tensors.embed.data);
    tensors.embed.dtype = SB_BF16;
    tensors.embed.data = random_rows(VOCAB, SB_BF16, 99);
    for (int32_t weights = SPECBATCH_WEIGHTS_AUTO; weights <= SPECBATCH_WEIGHTS_Q4; weights++) {
        const enum sb_dtype type = weights == SPECBATCH_WEIGHTS_Q8 ? SB_Q8_0 : SB_Q4_0;
        struct tensor *const made[] = {&expected.embed, &expected.q, &expected.k, &expected.up};
        struct gguf_writer w = file_of(&tensors, GGUF_F32);
        struct specbatch_model *m = NULL;
        expected = tensors;
        for (int i = 0; weights != SPECBATCH_WEIGHTS_AUTO && i < 4; i++) {
            const enum sb_dtype dtype = i == 0 ? SB_Q8_0 : type;
            made[i]->data = quantised(made[i], dtype);
            made[i]->dtype = dtype;
        }
        options.weights = weights;
        CHECK_OK(open_made(&m, &w, &options));
        CHECK(holds_all(m, &expected));
        CHECK(!digest[0] || strcmp(digest, m->digest) == 0);
        snprintf(digest, sizeof digest, "%s", m->digest);
        CHECK((strstr(m->fingerprint, "; weights q4") != NULL) ==
              (weights == SPECBATCH_WEIGHTS_Q4));
        CHECK((strstr(m->fingerprint, "; weights q8") != NULL) ==
              (weights == SPECBATCH_WEIGHTS_Q8));
        CHECK((strstr(m->fingerprint, "bf16+f16") != NULL) == (weights == SPECBATCH_WEIGHTS_AUTO));
        sb_model_release(m);
        for (int i = 0; weights != SPECBATCH_WEIGHTS_AUTO && i < 4; i++)
            free(made[i]->data);
    }
    free_tensors(&tensors);
}

/* A checkpoint of tensors opened by the option, whose rows are not whole blocks. */
static void the_option_takes_any_rows(void)
{
    static const char path[] = "test/data/models/llama_untied_f32_sharded";
    static const char *const names[] = {"f32", "q8_0", "q4_0"};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    for (int32_t weights = SPECBATCH_WEIGHTS_AUTO; weights <= SPECBATCH_WEIGHTS_Q4; weights++) {
        specbatch_model *m = NULL;
        options.weights = weights;
        CHECK_OK(specbatch_model_open(&m, path, &options));
        CHECK_STR(specbatch_model_dtype(m), names[weights]);
        CHECK_INT(m->head.dtype, weights == SPECBATCH_WEIGHTS_AUTO ? SB_F32 : SB_Q8_0);
        specbatch_model_close(m);
    }
    options.weights = 3;
    CHECK_ERROR(specbatch_model_open(&(specbatch_model *){NULL}, path, &options),
                SPECBATCH_E_INVALID, "weights is 3");
}

static void refuses_other_types(void)
{
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct made tensors = make_tensors(SB_Q4_0, SB_Q4_0, SB_Q4_0, SB_Q4_0);
    struct gguf_writer w = file_of(&tensors, 8);
    struct specbatch_model *m = NULL;

    CHECK_ERROR(open_made(&m, &w, &options), SPECBATCH_E_UNSUPPORTED,
                "tensor output_norm.weight has dtype Q8_0; a vector must be F32, BF16 or F16");
    free_tensors(&tensors);
}

/* Every allocation of opening a file whose weights are chained fails in turn. */
static void runs_out_of_memory_cleanly(void)
{
    struct made tensors = make_tensors(SB_Q4_K, SB_F16, SB_Q6_K, SB_BF16);
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct test_memory memory = {0, 0, 0};
    int32_t rc = SPECBATCH_E_NOMEM;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    options.weights = SPECBATCH_WEIGHTS_Q4;
    for (int64_t at = 0; rc != SPECBATCH_OK && at < 1000; at++) {
        struct gguf_writer w = file_of(&tensors, GGUF_F32);
        struct specbatch_model *m = NULL;
        memory = (struct test_memory){0, at, 0};
        rc = open_made(&m, &w, &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        sb_model_release(m);
        CHECK_INT(memory.live, 0);
    }
    CHECK_OK(rc);
    free_tensors(&tensors);
}

TEST_BEGIN
RUN(every_type_arrives);
RUN(the_option_quantises);
RUN(the_option_takes_any_rows);
RUN(refuses_other_types);
RUN(runs_out_of_memory_cleanly);
TEST_END
