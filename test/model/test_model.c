/*
 * Opening checkpoints: what is in memory then, what is refused, and that a failure leaves nothing
 * behind. Small checkpoints are written here, tensor by tensor, so that each can be wrong in any
 * way that a case needs. The checkpoints under test/data/models are opened as they are.
 */
#include "model/model.h"

#include "support/safetensors_writer.h"
#include "sbtest.h"

/* ------------------------------------------------- checkpoints that are written here */

struct entry {
    char name[80];
    const char *dtype;
    int64_t rows, cols;  /* cols 0: a vector */
    const char *copy_of; /* the name of a tensor whose values it has too; NULL: it has its own */
};
struct entries {
    struct entry list[40];
    int n;
};

static void add(struct entries *e, const char *name, const char *dtype, int64_t rows, int64_t cols)
{
    struct entry *at = &e->list[e->n++];

    snprintf(at->name, sizeof at->name, "%s", name);
    at->dtype = dtype;
    at->rows = rows;
    at->cols = cols;
    at->copy_of = NULL;
}

static struct entry *entry(struct entries *e, const char *name)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->list[i].name, name) == 0)
            return &e->list[i];
    return NULL;
}

enum { VOCAB = 70, HIDDEN = 8, INTER = 12, HEADS = 2, KV_HEADS = 1, HEAD_DIM = 6 };

#define CONFIG(arch, more)                                                                        \
    "{\"model_type\":\"" arch "\",\"vocab_size\":70,\"hidden_size\":8,\"intermediate_size\":12,"  \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":6," \
    "\"max_position_embeddings\":64,\"eos_token_id\":2" more "}"

/* The tensors of a one-layer Llama. */
static struct entries llama(const char *dtype)
{
    struct entries e = {.n = 0};

    add(&e, "model.embed_tokens.weight", dtype, VOCAB, HIDDEN);
    add(&e, "model.norm.weight", dtype, HIDDEN, 0);
    add(&e, "lm_head.weight", dtype, VOCAB, HIDDEN);
    add(&e, "model.layers.0.input_layernorm.weight", dtype, HIDDEN, 0);
    add(&e, "model.layers.0.post_attention_layernorm.weight", dtype, HIDDEN, 0);
    add(&e, "model.layers.0.self_attn.q_proj.weight", dtype, HEADS * HEAD_DIM, HIDDEN);
    add(&e, "model.layers.0.self_attn.k_proj.weight", dtype, KV_HEADS * HEAD_DIM, HIDDEN);
    add(&e, "model.layers.0.self_attn.v_proj.weight", dtype, KV_HEADS * HEAD_DIM, HIDDEN);
    add(&e, "model.layers.0.self_attn.o_proj.weight", dtype, HIDDEN, HEADS * HEAD_DIM);
    add(&e, "model.layers.0.mlp.gate_proj.weight", dtype, INTER, HIDDEN);
    add(&e, "model.layers.0.mlp.up_proj.weight", dtype, INTER, HIDDEN);
    add(&e, "model.layers.0.mlp.down_proj.weight", dtype, HIDDEN, INTER);
    return e;
}

/* Element j of the tensor called `name`: a whole number that all three types hold exactly. */
static float value_of(const char *name, int64_t j)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return (float)(int32_t)((h % 101u + (uint32_t)j * 37u) % 201u) - 100.0f;
}

static size_t element_size(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "F8_E4M3") == 0 ? 1 : 2;
}

/* The bits of a value as bf16 or f16; exact for small whole numbers. */
static uint16_t half_bits(float value, const char *dtype)
{
    uint32_t bits;

    memcpy(&bits, &value, 4);
    if (strcmp(dtype, "F16") != 0)
        return (uint16_t)(bits >> 16);
    return value == 0.0f
               ? 0
               : (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 0xffu) - 112u) << 10) |
                            (bits >> 13 & 0x3ffu));
}

static void write_checkpoint(const struct test_dir *dir, const struct entries *e,
                             const char *config)
{
    struct safetensors_writer w = {.data = {.n = 0}};

    for (int i = 0; i < e->n; i++) {
        const struct entry *t = &e->list[i];
        const int64_t shape[2] = {t->rows, t->cols}, n = t->rows * (t->cols ? t->cols : 1);
        const size_t size = element_size(t->dtype);
        unsigned char *data = calloc((size_t)n, size);
        for (int64_t j = 0; j < n && size > 1; j++) {
            const float value = value_of(t->copy_of ? t->copy_of : t->name, j);
            const uint16_t half = half_bits(value, t->dtype);
            memcpy(data + (size_t)j * size, size == 4 ? (const void *)&value : (const void *)&half,
                   size);
        }
        safetensors_tensor(&w, t->name, t->dtype, t->cols ? 2 : 1, shape, data, (size_t)n * size);
        free(data);
    }
    safetensors_write(&w, dir);
    test_write_text(dir, "config.json", config);
}

static int32_t open_made(struct specbatch_model **model, const struct entries *e,
                         const char *config, const specbatch_model_options *options)
{
    const specbatch_model_options defaults = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    int32_t rc;

    write_checkpoint(&dir, e, config);
    rc = sb_model_open(model, dir.path, options ? options : &defaults);
    test_dir_remove(&dir);
    return rc;
}

/* ------------------------------------------------------------------- what is in memory */

/* Reads row `row` of a packed weight back through the backend's own operations: y = W e_k is
 * column k. */
static int weight_holds(struct specbatch_model *m, const struct sb_weight *w,
                        const char *const *names, const int32_t *rows, int n_parts)
{
    const struct sb_exec_limits limits = {.max_tokens = 1,
                                          .max_width = w->n_in > w->n_out ? w->n_in : w->n_out,
                                          .max_len = 1,
                                          .max_heads = 1,
                                          .max_head_dim = 8};
    float *x = calloc((size_t)w->n_in, sizeof *x), *y = calloc((size_t)w->n_out, sizeof *y);
    struct sb_exec *exec = NULL;
    int good = m->backend->exec_create(&exec, m->device, &test_mem, 1, &limits, NULL) ==
               SPECBATCH_OK;

    for (int32_t k = 0; good && k < w->n_in; k++) {
        int32_t o = 0;
        x[k] = 1.0f;
        m->backend->gemm(exec, y, x, w, NULL, 1);
        good = m->backend->exec_sync(exec) == SPECBATCH_OK;
        x[k] = 0.0f;
        for (int p = 0; p < n_parts; p++)
            for (int32_t r = 0; r < rows[p]; r++)
                good &= y[o++] == value_of(names[p], (int64_t)r * w->n_in + k);
        good &= o == w->n_out;
    }
    if (exec)
        m->backend->exec_free(exec);
    free(x);
    free(y);
    return good;
}

static int vector_holds(const float *vector, const char *name, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (vector[i] != value_of(name, i))
            return 0;
    return 1;
}

#define L0 "model.layers.0."

static void holds_layer(struct specbatch_model *m)
{
    static const char *const qkv[] = {L0 "self_attn.q_proj.weight", L0 "self_attn.k_proj.weight",
                                      L0 "self_attn.v_proj.weight"};
    static const char *const gate_up[] = {L0 "mlp.gate_proj.weight", L0 "mlp.up_proj.weight"};
    static const char *const down[] = {L0 "mlp.down_proj.weight"};
    static const char *const o[] = {L0 "self_attn.o_proj.weight"};
    static const int32_t qkv_rows[] = {12, 6, 6}, gate_up_rows[] = {INTER, INTER},
                         hidden[] = {HIDDEN};
    const struct sb_layer *layer = &m->layers[0];

    CHECK(weight_holds(m, &layer->qkv, qkv, qkv_rows, 3));
    CHECK(weight_holds(m, &layer->o, o, hidden, 1));
    CHECK(weight_holds(m, &layer->mlp.gate_up, gate_up, gate_up_rows, 2));
    CHECK(weight_holds(m, &layer->mlp.down, down, hidden, 1));
    CHECK(vector_holds(layer->attn_norm, L0 "input_layernorm.weight", HIDDEN));
    CHECK(vector_holds(layer->ffn_norm, L0 "post_attention_layernorm.weight", HIDDEN));
    CHECK(!layer->post_attn_norm && !layer->post_ffn_norm && !layer->q_norm && !layer->qkv_bias &&
          !layer->o_bias);
}

/* Every tensor of a checkpoint ends up where it belongs, for each of the types. */
static void every_tensor_arrives(void)
{
    static const char *const types[] = {"F32", "BF16", "F16"};
    static const char *const embed[] = {"model.embed_tokens.weight"}, *const head[] = {
                                                                          "lm_head.weight"};
    static const int32_t vocab[] = {VOCAB};

    for (int i = 0; i < 3; i++) {
        const struct entries e = llama(types[i]);
        struct specbatch_model *m = NULL;
        CHECK_OK(open_made(&m, &e, CONFIG("llama", ""), NULL));
        CHECK_INT(m->dtype, i);
        CHECK(weight_holds(m, &m->embed, embed, vocab, 1));
        CHECK(weight_holds(m, &m->head, head, vocab, 1));
        CHECK(vector_holds(m->final_norm, "model.norm.weight", HIDDEN));
        holds_layer(m);
        sb_model_release(m);
    }
}

static void biases_are_stacked(void)
{
    struct entries e = llama("BF16");
    struct specbatch_model *m = NULL;

    add(&e, L0 "self_attn.v_proj.bias", "F32", 6, 0);
    add(&e, L0 "self_attn.q_proj.bias", "F16", 12, 0);
    add(&e, L0 "self_attn.k_proj.bias", "BF16", 6, 0);
    CHECK_OK(open_made(&m, &e, CONFIG("qwen2", ""), NULL));
    CHECK(vector_holds(m->layers[0].qkv_bias, L0 "self_attn.q_proj.bias", 12));
    CHECK(vector_holds(m->layers[0].qkv_bias + 12, L0 "self_attn.k_proj.bias", 6));
    CHECK(vector_holds(m->layers[0].qkv_bias + 18, L0 "self_attn.v_proj.bias", 6));
    sb_model_release(m);
}

/* All kinds of f16 numbers are loaded exactly: subnormal, largest, signed zero, infinity. */
static void half_floats_are_exact(void)
{
    static const uint16_t bits[HIDDEN] = {0x0001, 0x83ff, 0x0400, 0x7bff,
                                          0x8000, 0xfc00, 0x3c01, 0x0000};
    static const float values[HIDDEN] = {0x1p-24f, -0x3ffp-24f, 0x1p-14f,      65504.0f,
                                         -0.0f,    -INFINITY,   1.0009765625f, 0.0f};
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    struct entries e = {.n = 0};
    struct entries all = llama("F16");
    struct specbatch_model *m = NULL;
    size_t n = 0;
    char *file;

    add(&e, "model.norm.weight", "F16", HIDDEN, 0); /* first in the file's data */
    for (int i = 0; i < all.n; i++)
        if (strcmp(all.list[i].name, "model.norm.weight") != 0)
            e.list[e.n++] = all.list[i];
    write_checkpoint(&dir, &e, CONFIG("llama", ""));
    file = test_read(dir.path, "model.safetensors", &n);
    CHECK(file != NULL);
    memcpy(file + 8 + (unsigned char)file[0] + 256 * (unsigned char)file[1], bits, sizeof bits);
    test_write(&dir, "model.safetensors", file, n);
    free(file);
    CHECK_OK(sb_model_open(&m, dir.path, &options));
    CHECK_MEM(m->final_norm, values, sizeof values);
    sb_model_release(m);
    test_dir_remove(&dir);
}

#define LARGE(more)                                                                               \
    "{\"model_type\":\"llama\",\"vocab_size\":600011,\"hidden_size\":8,\"intermediate_size\":12," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":6," \
    "\"max_position_embeddings\":64,\"eos_token_id\":2" more "}"

/* A matrix of several blocks, whose rows fill neither blocks nor panels exactly. */
static void large_matrices_arrive(void)
{
    static const char *const names[] = {"model.embed_tokens.weight"};
    static const int32_t rows[] = {600011};
    struct entries e = llama("BF16");
    struct specbatch_model *m = NULL;

    entry(&e, "model.embed_tokens.weight")->rows = rows[0];
    entry(&e, "lm_head.weight")->rows = rows[0];
    CHECK_OK(open_made(&m, &e, LARGE(""), NULL));
    CHECK(weight_holds(m, &m->embed, names, rows, 1));
    sb_model_release(m);
}

enum { WIDE = (1 << 20) + 9 };

/* A row that is longer than a block, so that the loader has to widen its buffer. Three of its
 * columns are looked at. */
static void wide_rows_arrive(void)
{
    static const char down[] = L0 "mlp.down_proj.weight";
    static const int32_t columns[] = {0, 1 << 20, WIDE - 1};
    const struct sb_exec_limits limits = {
        .max_tokens = 1, .max_width = WIDE, .max_len = 1, .max_heads = 1, .max_head_dim = 8};
    struct entries e = llama("F32");
    struct specbatch_model *m = NULL;
    struct sb_exec *exec = NULL;
    float *x = calloc(WIDE, sizeof *x), y[HIDDEN];

    CHECK(x != NULL);
    entry(&e, L0 "mlp.gate_proj.weight")->rows = WIDE;
    entry(&e, L0 "mlp.up_proj.weight")->rows = WIDE;
    entry(&e, down)->cols = WIDE;
    CHECK_OK(
        open_made(&m, &e,
                  "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":8,"
                  "\"intermediate_size\":1048585,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                  "\"num_key_value_heads\":1,\"head_dim\":6,\"max_position_embeddings\":64}",
                  NULL));
    CHECK_OK(m->backend->exec_create(&exec, m->device, &test_mem, 1, &limits, NULL));
    for (int i = 0; i < 3; i++) {
        x[columns[i]] = 1.0f;
        m->backend->gemm(exec, y, x, &m->layers[0].mlp.down, NULL, 1);
        CHECK_OK(m->backend->exec_sync(exec));
        x[columns[i]] = 0.0f;
        for (int r = 0; r < HIDDEN; r++)
            CHECK(y[r] == value_of(down, (int64_t)r * WIDE + columns[i]));
    }
    m->backend->exec_free(exec);
    sb_model_release(m);
    free(x);
}

static void tied_models_share(void)
{
    struct entries e = llama("F32");
    struct specbatch_model *m = NULL;
    uint64_t bytes;

    CHECK_OK(open_made(&m, &e, CONFIG("llama", ""), NULL));
    CHECK(m->head.data != m->embed.data);
    bytes = m->bytes;
    sb_model_release(m);
    entry(&e, "lm_head.weight")->copy_of = "model.embed_tokens.weight";
    CHECK_OK(open_made(&m, &e, CONFIG("llama", ",\"tie_word_embeddings\":true"), NULL));
    CHECK(m->head.data == m->embed.data);
    CHECK(m->bytes < bytes);
    sb_model_release(m);
    entry(&e, "lm_head.weight")->name[0] = 'x';
    CHECK_OK(open_made(&m, &e, CONFIG("llama", ",\"tie_word_embeddings\":true"), NULL));
    sb_model_release(m);
    CHECK_ERROR(open_made(&m, &e, CONFIG("llama", ""), NULL), SPECBATCH_E_FORMAT,
                "lm_head.weight is missing");
}

/* If a tied model has lm_head.weight too, it must be a copy of the embedding to the last byte. */
static void tied_heads_are_copies(void)
{
    static const char embed[] = "model.embed_tokens.weight";
    static const struct {
        const char *config;
        int32_t rows;
    } sizes[] = {
        {CONFIG("llama", ",\"tie_word_embeddings\":true"), VOCAB},
        {LARGE(",\"tie_word_embeddings\":true"), 600011},
    };
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *m = NULL;

    for (int i = 0; i < 2; i++) {
        const struct test_dir dir = test_dir_make();
        struct entries e = llama("BF16");
        size_t n = 0;
        char *file;
        entry(&e, "lm_head.weight")->name[0] = 'x';
        entry(&e, embed)->rows = sizes[i].rows;
        add(&e, "lm_head.weight", "BF16", sizes[i].rows, HIDDEN); /* last in the file */
        entry(&e, "lm_head.weight")->copy_of = embed;
        write_checkpoint(&dir, &e, sizes[i].config);
        CHECK_OK(sb_model_open(&m, dir.path, &options));
        sb_model_release(m);
        file = test_read(dir.path, "model.safetensors", &n);
        CHECK(file != NULL);
        file[n - 1] ^= 1;
        test_write(&dir, "model.safetensors", file, n);
        free(file);
        CHECK_ERROR(
            sb_model_open(&m, dir.path, &options), SPECBATCH_E_UNSUPPORTED,
            "model.safetensors: tensor lm_head.weight differs from model.embed_tokens.weight");
        CHECK(strstr(specbatch_last_error(), "tie_word_embeddings to false"));
        test_dir_remove(&dir);
    }
}

/* It is no copy if it has another type or another shape. */
static void tied_heads_are_alike(void)
{
    static const char config[] = CONFIG("llama", ",\"tie_word_embeddings\":true");
    struct entries e = llama("F32");
    struct entry *head = entry(&e, "lm_head.weight");
    struct specbatch_model *m = NULL;

    head->copy_of = "model.embed_tokens.weight";
    head->dtype = "BF16";
    CHECK_ERROR(open_made(&m, &e, config, NULL), SPECBATCH_E_UNSUPPORTED,
                "lm_head.weight differs from");
    head->dtype = "F32";
    head->rows = VOCAB + 1;
    CHECK_ERROR(open_made(&m, &e, config, NULL), SPECBATCH_E_FORMAT,
                "lm_head.weight has shape [71, 8]");
}

static void real_checkpoints_open(void)
{
    static const struct {
        const char *dir, *arch, *fingerprint;
        int bias, tied;
    } cases[] = {
        {"qwen3_untied_f32_sharded", "qwen3", "qwen3 f32", 0, 0},
        {"llama3_scaled_biased_tied_bf16", "llama", "llama bf16", 1, 1},
        {"glm4_unbiased_bf16", "glm4", "glm4 bf16", 0, 0},
        {"qwen2_tied_f32", "qwen2", "qwen2 f32", 1, 1},
        {"llama_untied_f32_sharded.draft", "llama", "llama bf16", 0, 0},
    };
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct specbatch_model *m = NULL;
        char path[128];
        snprintf(path, sizeof path, "test/data/models/%s", cases[i].dir);
        CHECK_OK(sb_model_open(&m, path, &options));
        CHECK_STR(m->config.arch->model_type, cases[i].arch);
        CHECK_INT(m->config.layers, 3);
        CHECK_INT(m->layers[2].qkv_bias != NULL, cases[i].bias);
        CHECK_INT(m->head.data == m->embed.data, cases[i].tied);
        CHECK(strstr(m->fingerprint, "specbatch 0.") == m->fingerprint);
        CHECK(strstr(m->fingerprint, cases[i].fingerprint) != NULL);
        const int goes_through_unit = strstr(cases[i].fingerprint, "bf16") != NULL &&
                                      sb_cpu_has_matrix_unit(SPECBATCH_SIMD_AUTO);
        CHECK(strstr(m->fingerprint, goes_through_unit ? "; cpu-split: " : "; cpu-f32: ") != NULL);
        sb_model_release(m);
    }
}

/* ----------------------------------------------------------------------- what is refused */

static void refuses_wrong_tensors(void)
{
    static const struct {
        const char *name, *dtype;
        int64_t rows, cols;
        int32_t code;
        const char *part;
    } cases[] = {
        {L0 "mlp.up_proj.weight", "F32", 13, 8, SPECBATCH_E_FORMAT,
         "has shape [13, 8], config.json calls for [12, 8]"},
        {L0 "mlp.up_proj.weight", "F32", 8, 12, SPECBATCH_E_FORMAT,
         "mlp.up_proj.weight has shape [8, 12]"},
        {L0 "mlp.up_proj.weight", "F32", 96, 0, SPECBATCH_E_FORMAT, "has shape [96]"},
        {L0 "input_layernorm.weight", "F32", 8, 1, SPECBATCH_E_FORMAT,
         "input_layernorm.weight has shape [8, 1]"},
        {L0 "input_layernorm.weight", "F32", 9, 0, SPECBATCH_E_FORMAT, "has shape [9]"},
        {"model.embed_tokens.weight", "F32", 71, 8, SPECBATCH_E_FORMAT,
         "model.safetensors: tensor model.embed"},
        {L0 "self_attn.o_proj.weight", "F8_E4M3", 8, 12, SPECBATCH_E_UNSUPPORTED,
         "o_proj.weight has dtype F8_E4M3"},
        {"model.norm.weight", "F8_E4M3", 8, 0, SPECBATCH_E_UNSUPPORTED,
         "model.norm.weight has dtype F8_E4M3"},
    };
    struct specbatch_model *m = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct entries e = llama("F32");
        struct entry *t = entry(&e, cases[i].name);
        t->dtype = cases[i].dtype;
        t->rows = cases[i].rows;
        t->cols = cases[i].cols;
        CHECK_ERROR(open_made(&m, &e, CONFIG("llama", ""), NULL), cases[i].code, cases[i].part);
    }
}

/* Each tensor in turn is missing. */
static void refuses_missing_tensors(void)
{
    const struct entries all = llama("F32");
    struct specbatch_model *m = NULL;

    for (int i = 0; i < all.n; i++) {
        struct entries e = all;
        e.list[i].name[0] = 'x';
        CHECK_ERROR(open_made(&m, &e, CONFIG("llama", ""), NULL), SPECBATCH_E_FORMAT,
                    all.list[i].name);
        CHECK(strstr(specbatch_last_error(), "is missing") != NULL);
    }
    CHECK_ERROR(open_made(&m, &all, CONFIG("qwen2", ""), NULL), SPECBATCH_E_FORMAT,
                "q_proj.bias is missing");
    CHECK_ERROR(open_made(&m, &all, CONFIG("qwen3", ""), NULL), SPECBATCH_E_FORMAT,
                "q_norm.weight is missing");
    CHECK_ERROR(open_made(&m, &all, CONFIG("glm4", ",\"partial_rotary_factor\":1"), NULL),
                SPECBATCH_E_FORMAT, "post_self_attn_layernorm.weight");
    CHECK_ERROR(open_made(&m, &all, CONFIG("llama", ",\"mlp_bias\":true"), NULL),
                SPECBATCH_E_FORMAT, "mlp.gate_proj.bias is missing");
}

static void refuses_cuda(void)
{
    const struct entries e = llama("F32");
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *m = NULL;

    options.device = SPECBATCH_DEVICE_CUDA;
    CHECK_ERROR(open_made(&m, &e, CONFIG("llama", ""), &options), SPECBATCH_E_NO_DEVICE, "CUDA");
}

/* Most programs open two checkpoints, so a message begins with the path of the one it is about. */
static void names_the_checkpoint(void)
{
    static const char
        reason[] = "config.json: model_type \"gemma7\" is not supported; supported: llama, ";
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    struct specbatch_model *m = NULL;
    char path[700], whole[800];
    size_t n = 0;

    test_write_text(&dir, "config.json", CONFIG("gemma7", ""));
    snprintf(whole, sizeof whole, "%s: %s", dir.path, reason);
    CHECK_INT(sb_model_open(&m, dir.path, &options), SPECBATCH_E_UNSUPPORTED);
    CHECK(strncmp(specbatch_last_error(), whole, strlen(whole)) == 0);

    while (n < 300) /* the path is too long for the line: it loses its beginning, the reason nothing
                     */
        n += (size_t)snprintf(path + n, sizeof path - n, "./");
    snprintf(path + n, sizeof path - n, "%s", dir.path);
    CHECK_INT(sb_model_open(&m, path, &options), SPECBATCH_E_UNSUPPORTED);
    CHECK_INT(strlen(specbatch_last_error()), SPECBATCH_ERROR_MAX - 1);
    CHECK(strncmp(specbatch_last_error(), "...", 3) == 0);
    CHECK(strstr(specbatch_last_error(), whole) != NULL);
    snprintf(path, sizeof path, "%s/config.json", dir.path);
    snprintf(
        whole, sizeof whole,
        "%s: not a GGUF file: it does not begin with GGUF; of a checkpoint in a folder give the "
        "folder",
        path);
    CHECK_INT(sb_model_open(&m, path, &options), SPECBATCH_E_FORMAT);
    CHECK_STR(specbatch_last_error(), whole);
    CHECK_INT(sb_model_open(&m, "", &options), SPECBATCH_E_INVALID);
    CHECK_STR(specbatch_last_error(), "the path of the model is empty");
    test_dir_remove(&dir);
}

static char warning[600];
static int n_warnings;

static void note_warning(void *user, int32_t level, const char *line)
{
    (void)user;
    (void)level;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void warns_of_extra_tensors(void)
{
    struct entries e = llama("F32");
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *m = NULL;

    options.log = note_warning;
    n_warnings = 0;
    add(&e, L0 "self_attn.rotary_emb.inv_freq", "F32", 3, 0);
    CHECK_OK(open_made(&m, &e, CONFIG("llama", ""), &options));
    sb_model_release(m);
    CHECK_INT(n_warnings, 0);
    add(&e, "v_head.weight", "F8_E4M3", 3, 0);
    add(&e, "w_head.weight", "F32", 3, 0);
    CHECK_OK(open_made(&m, &e, CONFIG("llama", ""), &options));
    sb_model_release(m);
    CHECK_INT(n_warnings, 1);
    CHECK(strstr(warning, "2 tensors") && strstr(warning, "v_head.weight"));
}

/* That a file was truncated, or has grown, is noticed before anything is loaded. */
static void refuses_truncated_files(void)
{
    const specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    const struct entries e = llama("F32");
    struct specbatch_model *m = NULL;
    size_t n = 0;
    char *file;

    write_checkpoint(&dir, &e, CONFIG("llama", ""));
    file = test_read(dir.path, "model.safetensors", &n);
    CHECK(file != NULL);
    for (size_t cut = 0; cut < n; cut += cut < 16 ? 1 : 97) {
        test_write(&dir, "model.safetensors", file, cut);
        CHECK_ERROR(sb_model_open(&m, dir.path, &options), SPECBATCH_E_FORMAT, "model.safetensors");
    }
    test_write(&dir, "model.safetensors", file, n + 1);
    CHECK_ERROR(sb_model_open(&m, dir.path, &options), SPECBATCH_E_FORMAT, "1 bytes after");
    free(file);
    test_dir_remove(&dir);
}

/* One byte of config.json or of the header is changed. The checkpoint is opened or refused, without
 * a crash or a leak. */
static void survives_mutations(void)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    const struct test_dir dir = test_dir_make();
    struct test_memory memory = {0, INT64_MAX, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct entries e = llama("BF16");
    uint32_t random = 12345;
    int opened = 0;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    write_checkpoint(&dir, &e,
                     CONFIG("llama", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"));
    for (int which = 0; which < 2; which++) {
        size_t n = 0;
        char *file = test_read(dir.path, names[which], &n);
        CHECK(file != NULL);
        for (int round = 0; round < 1500; round++) {
            struct specbatch_model *m = NULL;
            size_t at;
            char old;
            random = random * 1664525u + 1013904223u;
            at = (random >> 8) % (n < 1600 ? n : 1600);
            old = file[at];
            file[at] = round % 2 ? (char)('0' + (random >> 4) % 10) : (char)(old ^ 1 << random % 7);
            test_write(&dir, names[which], file, n);
            opened += sb_model_open(&m, dir.path, &options) == SPECBATCH_OK;
            sb_model_release(m);
            CHECK_INT(memory.live, 0);
            file[at] = old;
        }
        test_write(&dir, names[which], file, n);
        free(file);
    }
    CHECK(opened > 50 && opened < 2900);
    test_dir_remove(&dir);
}

static void *metered_alloc(void *user, size_t size, size_t align)
{
    *(size_t *)user += size;
    return size > (size_t)64 << 20 ? NULL : aligned_alloc(align, size);
}

static void metered_free(void *user, void *block, size_t size)
{
    (void)user;
    (void)size;
    free(block);
}

/* config.json calls for the largest model that is allowed, and the files hold a tiny one. This is
 * refused at the first tensor that is compared, before any memory has been taken that only
 * config.json calls for. */
static void config_alone_takes_no_memory(void)
{
    static const char *const sizes[] = {
        "\"vocab_size\":16777216,\"hidden_size\":8,\"intermediate_size\":12,\"num_attention_"
        "heads\":2,\"head_dim\":6",
        "\"vocab_size\":70,\"hidden_size\":1048576,\"intermediate_size\":12,\"num_attention_"
        "heads\":2,\"head_dim\":6",
        "\"vocab_size\":70,\"hidden_size\":8,\"intermediate_size\":4194304,\"num_attention_heads\":"
        "2,\"head_dim\":6",
        "\"vocab_size\":70,\"hidden_size\":8,\"intermediate_size\":12,\"num_attention_heads\":"
        "65536,\"head_dim\":8192",
    };
    const struct entries e = llama("F32");
    size_t asked = 0;
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *m = NULL;

    options.alloc = metered_alloc;
    options.free = metered_free;
    options.alloc_user = &asked;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char config[400];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"llama\",%s,\"num_hidden_layers\":4096,"
                 "\"num_key_value_heads\":1,\"max_position_embeddings\":16777216}",
                 sizes[i]);
        asked = 0;
        CHECK_ERROR(open_made(&m, &e, config, &options), SPECBATCH_E_FORMAT,
                    "config.json calls for");
        if (asked > (size_t)8 << 20)
            FAIL("%zu bytes were asked for by {%s}", asked, sizes[i]);
    }
}

static void runs_out_of_memory_cleanly(void)
{
    static const char *const dirs[] = {"test/data/models/llama_untied_f32_sharded",
                                       "test/data/models/"
                                       "qwen2_tied_f32"};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct test_memory memory;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int i = 0; i < 2; i++) {
        struct specbatch_model *m = NULL;
        int32_t rc = SPECBATCH_E_NOMEM;
        for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
            memory = (struct test_memory){0, at, 0};
            rc = sb_model_open(&m, dirs[i], &options);
            CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
            CHECK(rc == SPECBATCH_OK || memory.live == 0);
            CHECK(at < 10000);
        }
        sb_model_release(m);
        CHECK_INT(memory.live, 0);
    }
}

/* ------------------------------------------------------------------------ sharing a model */

static void counts_references(void)
{
    const struct entries e = llama("F32");
    struct test_memory memory = {0, INT64_MAX, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *m = NULL;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    CHECK_OK(open_made(&m, &e, CONFIG("llama", ""), &options));
    sb_model_retain(m);
    sb_model_release(m);
    CHECK(memory.live > 0);
    sb_model_release(m);
    CHECK_INT(memory.live, 0);
    sb_model_retain(NULL);
    sb_model_release(NULL);
}

static void drafts_need_the_vocabulary(void)
{
    struct entries e = llama("F32");
    struct specbatch_model *target = NULL, *draft = NULL;
    const char *smaller =
        "{\"model_type\":\"llama\",\"vocab_size\":69,\"hidden_size\":8,\"intermediate_size\":12,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"head_dim\":6,\"max_position_embeddings\":64}";

    CHECK_OK(open_made(&target, &e, CONFIG("llama", ""), NULL));
    CHECK_OK(sb_model_check_draft(target, target));
    entry(&e, "model.embed_tokens.weight")->rows = 69;
    entry(&e, "lm_head.weight")->rows = 69;
    CHECK_OK(open_made(&draft, &e, smaller, NULL));
    CHECK_ERROR(sb_model_check_draft(target, draft), SPECBATCH_E_VOCAB, "69");
    sb_model_release(target);
    sb_model_release(draft);
}

TEST_BEGIN
RUN(every_tensor_arrives);
RUN(biases_are_stacked);
RUN(half_floats_are_exact);
RUN(large_matrices_arrive);
RUN(wide_rows_arrive);
RUN(tied_models_share);
RUN(tied_heads_are_copies);
RUN(tied_heads_are_alike);
RUN(real_checkpoints_open);
RUN(refuses_wrong_tensors);
RUN(refuses_missing_tensors);
RUN(refuses_cuda);
RUN(names_the_checkpoint);
RUN(warns_of_extra_tensors);
RUN(refuses_truncated_files);
RUN(survives_mutations);
RUN(config_alone_takes_no_memory);
RUN(runs_out_of_memory_cleanly);
RUN(counts_references);
RUN(drafts_need_the_vocabulary);
TEST_END
