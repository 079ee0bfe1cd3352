/*
 * Converting a checkpoint to a file: what goes in, and in which order. Of a directory a GGUF file
 * gets all of this, a safetensors file the last line, as it is.
 *
 *   config.json                  keys (gguf_keys.c), and a tensor for Llama 3's scaling or longrope
 *   tokenizer.json or .model     keys (gguf_describe.c), and the tokenizer.json itself where the
 *                                description lacks something
 *   chat_template.jinja          a key
 *   the files of weights         the tensors that the configuration calls for, renamed
 *
 * Of a GGUF file it gets the metadata (gguf_copy.c) and the same tensors, those of frequencies too.
 * Matrices that are quantised already are copied, and never quantised anew: to round what was
 * rounded loses more than the new type would by itself, and nobody could see that in the file.
 *
 * First all of that is planned and gathered; this reads no tensor, and finds what is missing or of
 * the wrong shape before there is a file. Then tensors are copied some rows at a time, so memory is
 * bounded by the vocabulary and by the longest row. At the end the configuration is read back from
 * a GGUF file and compared, and only then does the file get its name.
 *
 * A tensor is rows of n_in elements. Of vectors n_in is 1, so that the biases of Llama's q and k,
 * whose rows are in another order in the file, are as their matrices are.
 */
#include "model/convert.h"

#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "backend/quantiser.h"
#include "line.h"
#include "log.h"
#include "model/container.h"
#include "model/gguf_model.h"
#include "model/progress.h"
#include "model/safetensors_write.h"
#include "model/tensor_specs.h"
#include "quant.h"
#include "sort.h"
#include "status.h"
#include "text/chat.h"
#include "text/tokenizer.h"

enum {
    BLOCK_BYTES = 1 << 20, /* of rows as they are read, or one row if that has more */
    JSON_MAX = 1 << 28     /* bytes of a tokenizer.json */
};

/* A tensor on its way. */
struct move {
    const struct sb_tensor *tensor; /* NULL: divisors of frequencies */
    enum sb_dtype from, to;
    int32_t rank, rows, n_in;
    int32_t interleave; /* as in tensors.h, for the file that is written */
    int32_t expert;     /* whose it is, or -1. In GGUF files those of all experts are one tensor */
    float shift;        /* what is added to each element, which is an F32 then */
};

struct converter {
    struct sb_mem mem;
    struct sb_log log;
    const specbatch_model_options *options;
    struct sb_container from;
    struct sb_config config;
    struct sb_tensors *tensors;
    struct sb_tokenizer *tokenizer;
    int to_safetensors; /* the file is one; else it is a GGUF file */
    struct sb_gguf_out out;
    struct sb_safetensors_out plain_out;
    struct move *moves; /* in the order of the file */
    size_t n_moves, move_capacity;
    size_t in_bytes, out_bytes; /* of the buffers */
    char *in, *made;            /* rows as they are read, and as they are written */
    struct sb_progress progress;
};

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* ------------------------------------------------------------------------------- planning */

static int is_router(const struct converter *c, const char *name)
{
    const char *router = c->config.arch->router;
    char end[80];

    snprintf(end, sizeof end, "%s.weight", router ? router : "");
    return router && ends_in(name, end);
}

/* The type of a tensor in the file. A row has whole blocks there, and both quantised types have
 * blocks of the same length. Routers of mixtures are F32 in GGUF files, as llama.cpp has them. */
static enum sb_dtype type_in_file(const struct converter *c, const struct move *m, const char *name,
                                  int is_table)
{
    if (c->to_safetensors)
        return m->from;
    if (m->rank == 1 || is_router(c, name))
        return SB_F32;
    if (m->n_in % sb_quant_of(SB_Q8_0)->block != 0)
        return m->from;
    return sb_weights_dtype(c->options->weights, m->from, is_table);
}

static const char *type_name(const struct move *m)
{
    if (m->tensor && m->to == m->from)
        return m->tensor->type;
    return m->to == SB_Q8_0 ? "Q8_0" : m->to == SB_Q4_0 ? "Q4_0" : "F32";
}

/* How many rows are read at a time. */
static int32_t rows_at_once(const struct move *m)
{
    const size_t in = sb_dtype_row_bytes(m->from, (size_t)m->n_in);

    return (int32_t)(in < BLOCK_BYTES ? BLOCK_BYTES / in : 1);
}

/* Makes room in the buffers for the rows of a tensor. */
static void widen_buffers(struct converter *c, const struct move *m)
{
    const size_t in = sb_dtype_row_bytes(m->from, (size_t)m->n_in);
    const size_t made = sb_dtype_row_bytes(m->to, (size_t)m->n_in);
    const size_t rows = (size_t)rows_at_once(m);

    c->in_bytes = rows * in > c->in_bytes ? rows * in : c->in_bytes;
    c->out_bytes = rows * made > c->out_bytes ? rows * made : c->out_bytes;
}

/* The spelling of the tensor of all experts, by that of the first. */
static void drop_first(char *spelled)
{
    char *first = strstr(spelled, "_exps.0.");

    if (first) {
        first += strlen("_exps");
        memmove(first, first + 2, strlen(first + 2) + 1);
    }
}

/* Puts a tensor into the list of a GGUF file: that of all experts at the first of them. */
static void put_tensor(struct converter *c, const struct move *m, char *spelled)
{
    const int64_t all[3] = {c->config.experts, m->rows, m->n_in};
    const uint64_t bytes = (uint64_t)m->rows * sb_dtype_row_bytes(m->to, (size_t)m->n_in);

    if (m->expert < 0) {
        sb_gguf_put_tensor(&c->out, spelled, type_name(m), m->rank, all + 1, bytes);
    } else if (m->expert == 0) {
        drop_first(spelled);
        sb_gguf_put_tensor(&c->out, spelled, type_name(m), m->rank + 1, all,
                           (uint64_t)c->config.experts * bytes);
    }
}

static int32_t add_move(struct converter *c, const struct move *m, const char *name)
{
    char spelled[SB_TENSOR_NAME_BYTES];
    struct move *grown;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(grown, sb_grow(&c->mem, c->moves, &c->move_capacity, c->n_moves + 1, sizeof *grown),
           "a list of tensors");
    c->moves = grown;
    sb_gguf_spell(spelled, c->config.arch, name);
    c->moves[c->n_moves] = *m;
    c->moves[c->n_moves++].interleave = c->to_safetensors ? 0
                                                          : sb_gguf_interleave(&c->config, spelled);
    widen_buffers(c, m);
    if (!c->to_safetensors)
        put_tensor(c, m, spelled);
done:
    return rc;
}

/* Plans a tensor, which has to be there: of [rows, n_in], or of [rows] when n_in is 0. */
static int32_t plan(struct converter *c, const char *name, int32_t rows, int32_t n_in, int is_table,
                    int32_t expert)
{
    struct move m = {.rank = n_in ? 2 : 1, .rows = rows, .n_in = n_in ? n_in : 1, .expert = expert};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_need(&m.tensor, &m.from, c->tensors, name, rows, n_in));
    /* MXFP4 stays as it is: checkpoints are published in it, and the rest of them in BF16. */
    if (c->options->weights != SPECBATCH_WEIGHTS_AUTO && sb_dtype_is_quantised(m.from) &&
        m.from != SB_MXFP4)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "tensor %s is %s already, and to quantise it again would lose more; convert a file "
                "in F32, BF16 or F16, or the folder",
                m.tensor->name, m.tensor->type);
    m.to = type_in_file(c, &m, name, is_table);
    if (expert > 0 && !c->to_safetensors && m.to != c->moves[c->n_moves - 1].to)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "tensor %s is %s and that of the expert before it is not: a GGUF file has one type "
                "for all experts",
                m.tensor->name, m.tensor->type);
    if (!c->to_safetensors && ends_in(name, "norm.weight"))
        m.shift = c->tensors->norm_shift;
    c->progress.total += m.tensor->bytes;
    SB_TRY(add_move(c, &m, name));
done:
    return rc;
}

static int32_t plan_of_layer(void *ctx, const char *name, int32_t rows, int32_t n_in,
                             int32_t expert)
{
    return plan(ctx, name, rows, n_in, 0, expert);
}

/* Plans the tensors of divisors: of a GGUF file those that it has, of a directory that of its
 * scaling, where there is to be one. */
static int32_t plan_divisors(struct converter *c)
{
    static const char *const names[] = {SB_GGUF_DIVISORS, SB_GGUF_LONG_DIVISORS,
                                        SB_GGUF_SHORT_DIVISORS};
    const struct sb_rope_config *rope = &c->config.rope;
    const struct move made = {.from = SB_F32,
                              .to = SB_F32,
                              .rank = 1,
                              .rows = rope->rot_dim / 2,
                              .n_in = 1,
                              .expert = -1};
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; c->from.gguf && i < sizeof names / sizeof *names; i++)
        if (sb_tensors_find(c->tensors, names[i]))
            SB_TRY(plan(c, names[i], made.rows, 0, 0, -1));
    if (c->from.gguf || c->to_safetensors)
        goto done;
    if (rope->kind == SB_ROPE_LLAMA3 && rope->factor > 1.0)
        SB_TRY(add_move(c, &made, SB_GGUF_DIVISORS));
    if (rope->kind == SB_ROPE_LONGROPE)
        SB_TRY(add_move(c, &made, SB_GGUF_SHORT_DIVISORS));
done:
    return rc;
}

static int32_t plan_tensors(struct converter *c)
{
    const struct sb_config *g = &c->config;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(plan(c, "model.embed_tokens.weight", g->vocab, g->hidden, 1, -1));
    SB_TRY(plan_divisors(c));
    for (int32_t i = 0; i < g->layers; i++)
        SB_TRY(sb_layer_tensors_visit(g, i, plan_of_layer, c));
    SB_TRY(plan(c, "model.norm.weight", g->hidden, 0, 0, -1));
    if (!g->tied)
        SB_TRY(plan(c, "lm_head.weight", g->vocab, g->hidden, 1, -1));
done:
    return rc;
}

/* ------------------------------------------------------------------------------- metadata */

/* What llama.cpp calls the types of most tensors of a file (enum llama_ftype), for people who look
 * at it. */
static uint32_t file_type(const struct converter *c)
{
    static const uint32_t numbers[SB_DTYPES] = {
        [SB_F32] = 0, [SB_F16] = 1, [SB_Q4_0] = 2, [SB_Q8_0] = 7, [SB_BF16] = 32};
    uint64_t elements[SB_DTYPES] = {0};
    int most = SB_F32;

    for (size_t i = 0; i < c->n_moves; i++)
        elements[c->moves[i].to] += (uint64_t)c->moves[i].rows * (uint64_t)c->moves[i].n_in;
    for (int type = 0; type < SB_DTYPES; type++)
        most = elements[type] > elements[most] ? type : most;
    return numbers[most];
}

/* Puts a file of a directory into the file, under this key. *found: whether there is one. */
static int32_t put_text_file(int *found, struct converter *c, const char *dir, const char *name,
                             const char *key)
{
    char path[1024], *text = NULL;
    size_t n = 0;
    int32_t rc = SPECBATCH_OK;

    *found = 0;
    SB_TRY(sb_file_join(path, dir, name));
    rc = sb_file_load(&text, &n, &c->mem, path, JSON_MAX);
    *found = rc == SPECBATCH_OK;
    if (*found)
        sb_gguf_put_text(&c->out, key, text, n);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = SPECBATCH_OK;
done:
    sb_free(&c->mem, text);
    return rc;
}

/* Puts the tokenizer.json of a directory into the file, and the files beside it, which say more of
 * it. *found: whether there is a tokenizer.json. */
static int32_t put_tokenizer_json(int *found, struct converter *c, const char *dir)
{
    const char *name;
    char key[64];
    int is_there;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(put_text_file(found, c, dir, "tokenizer.json", SB_GGUF_HUGGING_FACE "json"));
    for (size_t i = 0; *found && (name = sb_tokenizer_beside(i)) != NULL; i++) {
        snprintf(key, sizeof key, SB_GGUF_HUGGING_FACE "%s", name);
        SB_TRY(put_text_file(&is_there, c, dir, name, key));
    }
done:
    return rc;
}

/* Puts a directory's tokenizer as metadata. Without one that it knows, llama.cpp opens a file for
 * ids only, and wants to be told. */
static int32_t put_tokenizer(struct converter *c)
{
    struct sb_gguf_text text = {.vocab = c->config.vocab,
                                .bos = c->config.bos,
                                .eos = c->config.n_eos > 0 ? c->config.eos[0] : -1};
    char place[200];
    int has_json = 0;
    int32_t rc = SPECBATCH_OK;

    if (c->tokenizer)
        SB_TRY(sb_tokenizer_describe(&c->out, c->tokenizer, &text));
    c->config.bos = text.bos;
    if (!text.described)
        sb_gguf_put_text(&c->out, "tokenizer.ggml.model", "none", 4);
    if (!c->tokenizer || !text.lost)
        goto done;
    SB_TRY(put_tokenizer_json(&has_json, c, c->from.path));
    sb_line_path(place, sizeof place, c->from.path);
    sb_log(&c->log, SPECBATCH_LOG_WARN,
           "%s: the keys of a GGUF file cannot say of the tokenizer: %s%s", place, text.lost,
           has_json ? "; so tokenizer.json is in the file too, which not all programs read" : "");
done:
    return rc;
}

static int32_t put_chat_template(struct converter *c)
{
    char *text = NULL;
    size_t n = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_template(&text, &n, &c->mem, c->from.path));
    if (text)
        sb_gguf_put_text(&c->out, "tokenizer.chat_template", text, n);
done:
    sb_free(&c->mem, text);
    return rc;
}

static int32_t put_directory(struct converter *c)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(put_tokenizer(c));
    SB_TRY(put_chat_template(c));
    sb_gguf_put_config(&c->out, &c->config);
    sb_gguf_put_file_type(&c->out, file_type(c));
done:
    return rc;
}

/* Puts the metadata of a GGUF file. A tokenizer.json beside it, by which models of it go, takes the
 * place of one in it, since nothing says that the new file will lie there too. */
static int32_t put_gguf(struct converter *c)
{
    const int is_quantised = c->options->weights != SPECBATCH_WEIGHTS_AUTO;
    char dir[1024];
    int has_json = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_folder(dir, c->from.path));
    SB_TRY(put_tokenizer_json(&has_json, c, dir));
    SB_TRY(sb_gguf_copy_keys(&c->out, &c->mem, c->from.gguf,
                             is_quantised ? (int32_t)file_type(c) : -1,
                             has_json ? SB_GGUF_HUGGING_FACE : NULL));
done:
    return rc;
}

/* -------------------------------------------------------------------------------- copying */

/* The row of a tensor that becomes row `row` of the file. The rows of a head's first half become
 * its even rows, and those of the second half its odd ones. */
static uint64_t source_row(const struct move *m, uint64_t row)
{
    const uint64_t head = (uint64_t)m->interleave, in_head = head ? row % head : 0;

    return row - in_head + in_head / 2 + in_head % 2 * (head / 2);
}

/* Reads some rows, in the order of the file that is written. */
static int32_t read_rows(struct converter *c, const struct move *m, int32_t first, int32_t n)
{
    const size_t row = sb_dtype_row_bytes(m->from, (size_t)m->n_in);
    int32_t rc = SPECBATCH_OK;

    if (!m->interleave)
        return sb_tensors_read(c->tensors, m->tensor, (uint64_t)first * row, c->in,
                               (size_t)n * row);
    for (int32_t i = 0; i < n; i++)
        SB_TRY(sb_tensors_read(c->tensors, m->tensor, source_row(m, (uint64_t)(first + i)) * row,
                               c->in + (size_t)i * row, row));
done:
    return rc;
}

static int32_t put_data(struct converter *c, const void *bytes, size_t n)
{
    return c->to_safetensors ? sb_safetensors_out_data(&c->plain_out, bytes, n)
                             : sb_gguf_out_data(&c->out, bytes, n);
}

static void shift_all(float *x, size_t n, float shift)
{
    for (size_t i = 0; i < n; i++)
        x[i] += shift;
}

static int32_t copy_tensor(struct converter *c, const struct move *m)
{
    const size_t in = sb_dtype_row_bytes(m->from, (size_t)m->n_in);
    const size_t made = sb_dtype_row_bytes(m->to, (size_t)m->n_in);
    const int32_t block = rows_at_once(m);
    int32_t rc = SPECBATCH_OK;

    for (int32_t at = 0, n; at < m->rows; at += n) {
        n = m->rows - at < block ? m->rows - at : block;
        SB_TRY(read_rows(c, m, at, n));
        sb_convert_rows(c->made, m->to, c->in, m->from, (size_t)n, (size_t)m->n_in);
        if (m->shift != 0.0f)
            shift_all((float *)(void *)c->made, (size_t)n, m->shift);
        SB_TRY(put_data(c, c->made, (size_t)n * made));
        SB_TRY(sb_progress_add(&c->progress, (uint64_t)n * in));
    }
done:
    return rc;
}

static int32_t write_divisors(struct converter *c, const struct move *m)
{
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < m->rows; i++) {
        const float divisor = (float)sb_gguf_divisor(&c->config.rope, i);
        SB_TRY(sb_gguf_out_data(&c->out, &divisor, sizeof divisor));
    }
done:
    return rc;
}

static int32_t copy_tensors(struct converter *c)
{
    int32_t rc = SPECBATCH_OK;

    SB_NEW(c->in, sb_alloc_raw(&c->mem, c->in_bytes, 1), "rows");
    SB_NEW(c->made, sb_alloc_raw(&c->mem, c->out_bytes, 1), "rows");
    if (c->config.tied)
        SB_TRY(sb_tensors_check_tied(c->tensors, c->config.vocab, c->config.hidden, c->in,
                                     c->in_bytes));
    for (size_t i = 0; i < c->n_moves; i++) {
        const struct move *m = &c->moves[i];
        const int goes_on = i + 1 < c->n_moves && c->moves[i + 1].expert > 0;
        SB_TRY(m->tensor ? copy_tensor(c, m) : write_divisors(c, m));
        if (!c->to_safetensors && !goes_on)
            SB_TRY(sb_gguf_out_pad(&c->out));
    }
done:
    return rc;
}

/* ------------------------------------------------------------------------------ the whole */

/* Reads the configuration back from the file, which has its temporary name yet. */
static int32_t check_config(struct converter *c)
{
    const struct sb_log silence = {NULL, NULL};
    struct sb_gguf *gguf = NULL;
    struct sb_config got;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_gguf_open(&gguf, &c->mem, c->out.file.temporary));
    SB_TRY(sb_gguf_config(&got, &silence, gguf));
    SB_TRY(sb_gguf_check_config(&c->config, &got, &c->log, c->from.path));
done:
    sb_gguf_close(gguf);
    return rc;
}

/* Those of F32 first, and of one type by their names. */
static int by_alignment(const void *a, const void *b)
{
    const struct move *x = a, *y = b;
    const int is_short = x->from != SB_F32, other = y->from != SB_F32;

    return is_short != other ? is_short - other : strcmp(x->tensor->name, y->tensor->name);
}

static int32_t write_safetensors(struct converter *c, const char *to)
{
    int32_t rc = SPECBATCH_OK;

    if (c->from.gguf)
        SB_FAIL(
            SPECBATCH_E_UNSUPPORTED,
            "a GGUF file has no config.json for safetensors to lie beside; convert it to a GGUF "
            "file");
    if (c->options->weights != SPECBATCH_WEIGHTS_AUTO)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "safetensors have no quantised types; only a GGUF file has them");
    if (c->config.arch->stacked_gate_up)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "safetensors of %s are not written; convert it to a GGUF file",
                c->config.arch->model_type);
    sb_sort(c->moves, c->n_moves, sizeof *c->moves, by_alignment);
    for (size_t i = 0; i < c->n_moves; i++)
        sb_safetensors_put(&c->plain_out, c->moves[i].tensor);
    SB_TRY(sb_safetensors_out_begin(&c->plain_out, to));
    SB_TRY(copy_tensors(c));
    SB_TRY(sb_safetensors_out_keep(&c->plain_out));
done:
    return rc;
}

static int32_t write_gguf(struct converter *c, const char *to)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_container_tokenizer(&c->tokenizer, &c->from, &c->mem));
    SB_TRY(c->from.gguf ? put_gguf(c) : put_directory(c));
    SB_TRY(sb_gguf_out_begin(&c->out, to));
    SB_TRY(copy_tensors(c));
    SB_TRY(check_config(c));
    SB_TRY(sb_gguf_out_keep(&c->out));
done:
    return rc;
}

static int32_t convert(struct converter *c, const char *to, const char *from)
{
    int32_t rc = SPECBATCH_OK;

    c->to_safetensors = ends_in(to, ".safetensors");
    SB_TRY(sb_container_open(&c->from, &c->mem, from));
    SB_TRY(sb_container_config(&c->config, &c->from, &c->mem, &c->log));
    SB_TRY(sb_container_tensors(&c->tensors, &c->from, &c->mem, &c->config));
    SB_TRY(plan_tensors(c));
    rc = c->to_safetensors ? write_safetensors(c, to) : write_gguf(c, to);
done:
    return rc;
}

int32_t sb_model_convert(const char *to, const char *from, const specbatch_model_options *options)
{
    struct converter c = {.mem = {options->alloc, options->free, options->alloc_user},
                          .log = {options->log, options->log_user},
                          .options = options,
                          .progress = {options, "converting", 0, 0}};
    int32_t rc;

    if (!from[0] || !to[0])
        return sb_fail(SPECBATCH_E_INVALID, "the path of the %s is empty",
                       to[0] ? "model" : "GGUF file");
    if (sb_file_is_directory(to))
        return sb_fail(SPECBATCH_E_INVALID, "%.100s is a directory, and not to be a file", to);
    sb_gguf_out_init(&c.out, &c.mem);
    sb_safetensors_out_init(&c.plain_out, &c.mem);
    rc = convert(&c, to, from);
    rc = sb_file_fail(rc, c.out.rc != SPECBATCH_OK || c.plain_out.rc != SPECBATCH_OK ? to : from);
    sb_gguf_out_clear(&c.out);
    sb_safetensors_out_clear(&c.plain_out);
    sb_free(&c.mem, c.made);
    sb_free(&c.mem, c.in);
    sb_free(&c.mem, c.moves);
    sb_tokenizer_free(c.tokenizer);
    sb_tensors_close(c.tensors);
    sb_container_close(&c.from);
    return rc;
}
