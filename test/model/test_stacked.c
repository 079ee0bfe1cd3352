/*
 * Folders that have the experts of a layer in one tensor, as gpt-oss has them: what is found under
 * the names of single experts are the numbers of their rows, of MXFP4 in two tensors or of floats
 * whose matrices are turned, read whole or by rows. A stack of a wrong shape or type is refused by
 * its name.
 */
#include "model/stacked.h"

#include "half.h"
#include "model/container.h"
#include "model/model.h"
#include "model/shards.h"
#include "quant.h"
#include "sbtest.h"
#include "support/safetensors_writer.h"

#define FOLDER "test/data/models/gpt_oss_mxfp4"
#define EXPERTS_OF_0 "model.layers.0.mlp.experts."

enum { EXPERTS = 4, HIDDEN = 64, INTER = 32, LAYERS = 2, MOST = 2 * INTER * HIDDEN };

/* ------------------------------------------------------------------ folders */

/* A tensor of a file that is written. */
struct out {
    char name[96], type[12];
    int32_t rank;
    int64_t shape[4];
    void *data;
    size_t bytes;
};
struct folder {
    struct out list[64];
    int n;
};

/* The tensor of that name; the program ends if there is none. */
static struct out *find_out(struct folder *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->list[i].name, name) == 0)
            return &f->list[i];
    fprintf(stderr, "no tensor %s\n", name);
    exit(1);
}

/* All tensors of the checkpoint. */
static void read_folder(struct folder *f)
{
    struct sb_tensors *raw = NULL;

    f->n = 0;
    CHECK_OK(sb_tensors_open(&raw, &test_mem, FOLDER));
    for (int32_t i = 0; i < sb_tensors_count(raw); i++) {
        const struct sb_tensor *t = sb_tensors_at(raw, i);
        struct out *out = &f->list[f->n++];
        CHECK(f->n < 64 && t->rank <= 4);
        snprintf(out->name, sizeof out->name, "%s", t->name);
        snprintf(out->type, sizeof out->type, "%s", t->type);
        out->rank = t->rank;
        memcpy(out->shape, t->shape, sizeof out->shape);
        out->bytes = (size_t)t->bytes;
        out->data = malloc(out->bytes);
        CHECK(out->data != NULL);
        CHECK_OK(sb_tensors_read(raw, t, 0, out->data, out->bytes));
    }
    sb_tensors_close(raw);
}

static void free_folder(struct folder *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->list[i].data);
}

static void write_folder(const struct test_dir *dir, const struct folder *f)
{
    struct safetensors_writer w = {.data = {.n = 0}};

    for (int i = 0; i < f->n; i++) {
        const struct out *t = &f->list[i];
        safetensors_tensor(&w, t->name, t->type, t->rank, t->shape, t->data, t->bytes);
    }
    test_copy(dir, FOLDER, "model.safetensors");
    safetensors_write(&w, dir);
}

static void drop(struct folder *f, const char *name)
{
    struct out *t = find_out(f, name);

    free(t->data);
    *t = f->list[--f->n];
}

/* ------------------------------------------------------------------ what the file says */

/* One map of all experts of a layer, as numbers of the file: [experts, rows, n_in]. */
struct stack {
    int rows, n_in;
    float values[EXPERTS * MOST];
};

/* The data of a tensor of a layer's experts. */
static const void *data_of(struct folder *f, int layer, const char *name)
{
    char full[96];

    snprintf(full, sizeof full, "model.layers.%d.mlp.experts.%s", layer, name);
    return find_out(f, full)->data;
}

/* By the definition of the format: two elements to a byte, the lower one first, and a power of two
 * for 32 of them (Open Compute Project, Microscaling Formats 1.0, 5.3.3 and 6.3). */
static void read_stack(struct stack *s, struct folder *f, int layer, int is_down)
{
    static const float sizes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const unsigned char *blocks = data_of(f, layer,
                                          is_down ? "down_proj_blocks" : "gate_up_proj_blocks");
    const unsigned char *scales = data_of(f, layer,
                                          is_down ? "down_proj_scales" : "gate_up_proj_scales");

    s->rows = is_down ? HIDDEN : 2 * INTER;
    s->n_in = is_down ? INTER : HIDDEN;
    const int n = EXPERTS * s->rows * s->n_in;
    for (int i = 0; i < n; i++) {
        const int code = i % 2 ? blocks[i / 2] >> 4 : blocks[i / 2] & 15;
        const float size = ldexpf(sizes[code & 7], scales[i / 32] - 127);
        s->values[i] = code & 8 ? -size : size;
    }
}

/* Puts floats, whose matrices are turned, in the place of a stack's blocks and scales. */
static void turn(struct folder *f, int layer, int is_down, enum sb_dtype dtype)
{
    static const char *const types[] = {[SB_F32] = "F32", [SB_BF16] = "BF16", [SB_F16] = "F16"};
    static struct stack s;
    static float turned[EXPERTS * MOST];
    const size_t size = sb_dtype_size(dtype);
    char name[96];
    struct out *t;

    read_stack(&s, f, layer, is_down);
    for (int i = 0; i < EXPERTS * s.rows * s.n_in; i++) {
        const int e = i / (s.rows * s.n_in), row = i / s.n_in % s.rows, k = i % s.n_in;
        turned[(e * s.n_in + k) * s.rows + row] = s.values[i];
    }
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_proj_scales", layer,
             is_down ? "down" : "gate_up");
    drop(f, name);
    snprintf(strstr(name, "_scales"), 10, "_blocks");
    t = find_out(f, name);
    *strstr(t->name, "_blocks") = '\0';
    snprintf(t->type, sizeof t->type, "%s", types[dtype]);
    t->rank = 3;
    t->shape[0] = EXPERTS;
    t->shape[1] = s.n_in;
    t->shape[2] = s.rows;
    free(t->data);
    t->bytes = (size_t)(EXPERTS * s.rows * s.n_in) * size;
    t->data = malloc(t->bytes);
    CHECK(t->data != NULL);
    sb_convert(t->data, dtype, turned, SB_F32, (size_t)(EXPERTS * s.rows * s.n_in));
}

/* ------------------------------------------------------------------ single experts */

static void open_folder(struct sb_tensors **set, const char *path)
{
    const struct sb_log silence = {NULL, NULL};
    struct sb_container container = {0};
    struct sb_config config;

    CHECK_OK(sb_container_open(&container, &test_mem, path));
    CHECK_OK(sb_container_config(&config, &container, &test_mem, &silence));
    CHECK_OK(sb_container_tensors(set, &container, &test_mem, &config));
    sb_container_close(&container);
}

/* The numbers of rows [first, first + n). */
static void read_rows(float *to, const struct sb_tensors *set, const struct sb_tensor *t, int first,
                      int n)
{
    static char bytes[4 * MOST];
    const size_t row_bytes = (size_t)t->bytes / (size_t)t->shape[0];
    const size_t columns = t->rank > 1 ? (size_t)t->shape[1] : 1;
    enum sb_dtype dtype = SB_F32;

    CHECK(sb_tensor_dtype(&dtype, t));
    CHECK_OK(sb_tensors_read(set, t, (uint64_t)first * row_bytes, bytes, (size_t)n * row_bytes));
    for (int r = 0; r < n; r++)
        if (dtype == SB_MXFP4)
            sb_quant_read(to + (size_t)r * columns, dtype, bytes + (size_t)r * row_bytes, columns);
        else
            sb_convert(to + (size_t)r * columns, SB_F32, bytes + (size_t)r * row_bytes, dtype,
                       columns);
}

/* Holds an expert's map, which is each `of`-th row of the stack's from `from` on, against it. */
static void check_map(const struct sb_tensors *set, const struct stack *s, int layer, int e,
                      const char *map, int from, int of)
{
    static float got[MOST];
    const float *values = s->values + e * s->rows * s->n_in;
    char name[96];
    const struct sb_tensor *t;

    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, e, map);
    t = sb_tensors_find(set, name);
    CHECK(t != NULL);
    CHECK(t->rank == 2 && t->shape[0] == s->rows / of && t->shape[1] == s->n_in);
    for (int piece = 0; piece < 3; piece++) {
        const int first = piece == 1 ? 3 : 0, n = piece == 0 ? (int)t->shape[0] : 1 + 4 * piece;
        read_rows(got, set, t, first, n);
        for (int i = 0; i < n * s->n_in; i++) {
            const int row = (first + i / s->n_in) * of + from;
            CHECK(got[i] == values[row * s->n_in + i % s->n_in]);
        }
    }
    CHECK_ERROR(sb_tensors_read(set, t, 0, got, 3), SPECBATCH_E_INVALID, "a part of a row");
    CHECK_ERROR(sb_tensors_read(set, t, 1, got, (size_t)t->bytes / (size_t)t->shape[0]),
                SPECBATCH_E_INVALID, "a part of a row");
}

/* The same for its bias, of which every element is a row. */
static void check_bias(const struct sb_tensors *set, struct folder *f, int layer, int e,
                       const char *map, int from, int of)
{
    const uint16_t *all = data_of(f, layer, of == 2 ? "gate_up_proj_bias" : "down_proj_bias");
    const int rows = of == 2 ? 2 * INTER : HIDDEN;
    uint16_t got[2 * INTER];
    char name[96];
    const struct sb_tensor *t;

    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.bias", layer, e, map);
    t = sb_tensors_find(set, name);
    CHECK(t != NULL && t->rank == 1 && t->shape[0] == rows / of);
    CHECK_OK(sb_tensors_read(set, t, 0, got, (size_t)t->bytes));
    for (int i = 0; i < rows / of; i++)
        CHECK(got[i] == all[e * rows + i * of + from]);
}

/* All of a folder, which has the numbers of the checkpoint. */
static void check_folder(const char *path)
{
    static struct stack gate_up, down;
    static struct folder f;
    struct sb_tensors *set = NULL;

    open_folder(&set, path);
    read_folder(&f);
    for (int i = 0; i < LAYERS; i++) {
        read_stack(&gate_up, &f, i, 0);
        read_stack(&down, &f, i, 1);
        for (int e = 0; e < EXPERTS; e++) {
            check_map(set, &gate_up, i, e, "gate_proj", 0, 2);
            check_map(set, &gate_up, i, e, "up_proj", 1, 2);
            check_map(set, &down, i, e, "down_proj", 0, 1);
            check_bias(set, &f, i, e, "gate_proj", 0, 2);
            check_bias(set, &f, i, e, "up_proj", 1, 2);
            check_bias(set, &f, i, e, "down_proj", 0, 1);
        }
    }
    CHECK(sb_tensors_find(set, EXPERTS_OF_0 "down_proj_blocks") == NULL);
    CHECK(sb_tensors_find(set, EXPERTS_OF_0 "gate_up_proj_bias") == NULL);
    free_folder(&f);
    sb_tensors_close(set);
}

static void blocks_and_scales(void)
{
    check_folder(FOLDER);
}

/* Of each type, and of one layer alone: each map may be stored in its own way. */
static void turned_floats(void)
{
    static const enum sb_dtype types[] = {SB_F32, SB_BF16, SB_F16, SB_BF16};

    for (int i = 0; i < 4; i++) {
        const struct test_dir dir = test_dir_make();
        struct specbatch_model *model = NULL;
        static struct folder f;
        read_folder(&f);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int is_down = 0; is_down < 2; is_down++)
                if (i < 3 || layer == is_down)
                    turn(&f, layer, is_down, types[i]);
        write_folder(&dir, &f);
        check_folder(dir.path);
        CHECK_OK(specbatch_model_open(&model, dir.path, NULL));
        specbatch_model_close(model);
        free_folder(&f);
        test_dir_remove(&dir);
    }
}

/* ------------------------------------------------------------------ refusals */

/* What is done to a tensor: its type and shape are changed, where they are given; if neither is, it
 * goes. */
struct edit {
    const char *name, *type;
    int32_t rank;
    int64_t shape[4];
};

static void apply(struct folder *f, const struct edit *edit)
{
    if (!edit->type && edit->rank == 0) {
        drop(f, edit->name);
        return;
    }
    struct out *t = find_out(f, edit->name);
    if (edit->type)
        snprintf(t->type, sizeof t->type, "%s", edit->type);
    if (edit->rank > 0) {
        t->rank = edit->rank;
        memcpy(t->shape, edit->shape, sizeof t->shape);
    }
}

#define GATE_UP EXPERTS_OF_0 "gate_up_proj"
#define DOWN EXPERTS_OF_0 "down_proj"

static const struct {
    int is_turned; /* the first layer's down_proj is of floats */
    struct edit edits[2];
    int32_t code;
    const char *part;
} cases[] = {
    {0,
     {{.name = GATE_UP "_blocks", .rank = 4, .shape = {EXPERTS, HIDDEN, 1, 32}}},
     SPECBATCH_E_FORMAT,
     "model.safetensors: tensor " GATE_UP "_blocks has shape [4, 64, 1, 32]"},
    {0,
     {{.name = DOWN "_blocks", .rank = 3, .shape = {EXPERTS, HIDDEN, 16}}},
     SPECBATCH_E_FORMAT,
     "tensor " DOWN "_blocks has shape [4, 64, 16]"},
    {0,
     {{.name = DOWN "_scales", .rank = 3, .shape = {HIDDEN, EXPERTS, 1}}},
     SPECBATCH_E_FORMAT,
     "tensor " DOWN "_scales has shape [64, 4, 1]"},
    {0,
     {{.name = DOWN "_scales"}},
     SPECBATCH_E_FORMAT,
     DOWN ": blocks and scales are not those of MXFP4"},
    {0,
     {{.name = GATE_UP "_blocks"}},
     SPECBATCH_E_FORMAT,
     GATE_UP ": blocks and scales are not those of MXFP4"},
    {0,
     {{.name = DOWN "_scales", .type = "I8"}},
     SPECBATCH_E_FORMAT,
     DOWN ": blocks and scales are not"},
    {0,
     {{.name = DOWN "_blocks", .type = "I8"}},
     SPECBATCH_E_FORMAT,
     DOWN ": blocks and scales are not"},
    {0,
     {{.name = DOWN "_blocks"}, {.name = DOWN "_scales"}},
     SPECBATCH_E_FORMAT,
     "tensor " EXPERTS_OF_0 "0.down_proj.weight is missing"},
    {0,
     {{.name = DOWN "_bias"}},
     SPECBATCH_E_FORMAT,
     "tensor " EXPERTS_OF_0 "0.down_proj.bias is missing"},
    {0,
     {{.name = DOWN "_bias", .rank = 2, .shape = {HIDDEN, EXPERTS}}},
     SPECBATCH_E_FORMAT,
     "tensor " DOWN "_bias has shape [64, 4]"},
    {0,
     {{.name = DOWN "_bias", .type = "I16"}},
     SPECBATCH_E_UNSUPPORTED,
     "tensor " DOWN "_bias has dtype I16; supported: F32"},
    {1,
     {{.name = DOWN, .type = "I16"}},
     SPECBATCH_E_UNSUPPORTED,
     "tensor " DOWN " has dtype I16; supported: F32"},
    {1,
     {{.name = DOWN, .rank = 3, .shape = {EXPERTS, HIDDEN, INTER}}},
     SPECBATCH_E_FORMAT,
     "tensor " DOWN " has shape [4, 64, 32]"},
    {0,
     {{.name = "model.layers.0.self_attn.sinks", .rank = 2, .shape = {3, 1}}},
     SPECBATCH_E_FORMAT,
     "tensor model.layers.0.self_attn.sinks has shape [3, 1]"},
};

static void refusals(void)
{
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const struct test_dir dir = test_dir_make();
        struct specbatch_model *model = NULL;
        static struct folder f;
        read_folder(&f);
        if (cases[i].is_turned)
            turn(&f, 0, 1, SB_BF16);
        for (int k = 0; k < 2 && cases[i].edits[k].name; k++)
            apply(&f, &cases[i].edits[k]);
        write_folder(&dir, &f);
        CHECK_ERROR(specbatch_model_open(&model, dir.path, NULL), cases[i].code, cases[i].part);
        free_folder(&f);
        test_dir_remove(&dir);
    }
}

static void runs_out_of_memory_cleanly(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct test_memory memory = {0, 0, 0};
    int32_t rc = SPECBATCH_E_NOMEM;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int64_t at = 0; rc != SPECBATCH_OK && at < 2000; at++) {
        struct specbatch_model *m = NULL;
        memory = (struct test_memory){0, at, 0};
        rc = sb_model_open(&m, FOLDER, &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        sb_model_release(m);
        CHECK_INT(memory.live, 0);
    }
    CHECK_OK(rc);
}

TEST_BEGIN
RUN(blocks_and_scales);
RUN(turned_floats);
RUN(refusals);
RUN(runs_out_of_memory_cleanly);
TEST_END
