/*
 * Loading: from the tensors of a checkpoint to the packed weights of a model.
 *
 *   q_proj, k_proj, v_proj  ->  one matrix [q rows | k rows | v rows, n_in], packed by the backend
 *                               (or qkv_proj as it is)
 *   gate_proj, up_proj      ->  one matrix [gate rows | up rows, n_in]  (or gate_up_proj as it is),
 *                               likewise for each expert
 *   norms, biases           ->  float vectors
 *
 * The type and shape of every tensor are compared with the configuration before memory is taken for
 * it, and the shape has been compared with the length of the file when that was opened. So a
 * hostile configuration can make the loader neither allocate more than the files are long nor read
 * beyond a tensor. Rows are read into one bounded buffer, from which the backend packs them, those
 * in one half of it while the next are read into the other (fill.h). Mapping the file instead would
 * save one copy, but would kill the host with SIGBUS if the file shrank in the meantime.
 *
 * A matrix keeps the type that it has in the file, unless the option `weights` has it quantised
 * here, or the backend's compute class holds another that is not quantised. A model may have
 * matrices of different types. So may the parts of a stacked matrix: parts of one type that follow
 * each other are one weight, and these weights are chained.
 *
 *     q Q4_K, k Q4_K, v Q6_K     ->     [q rows | k rows] Q4_K  - next ->  [v rows] Q6_K
 *
 * The bytes of numbers are taken as they are, so the host must be little-endian, as the files are.
 */
#include <stdio.h>
#include <string.h>

#include "line.h"
#include "model/fill.h"
#include "model/model.h"
#include "model/progress.h"
#include "model/tensor_specs.h"
#include "model/tensors.h"
#include "status.h"

#define HALF_BYTES ((size_t)2 << 20)
#define NAME_BYTES SB_TENSOR_NAME_BYTES

struct loader {
    struct specbatch_model *model;
    const struct sb_tensors *tensors;
    char *used;   /* [tensors, as numbered by sb_tensors_at] 1: the model has taken this tensor */
    char *buffer; /* for rows on their way from the file to the backend, in two halves */
    int half;     /* which of them is read to next; the rows that wait are in the other one */
    struct sb_filling waiting; /* rows that have been read, and are filled in while others are */
    struct sb_filler *filler;
    struct sb_digest digest;                /* of what has been read */
    const specbatch_model_options *options; /* for the type of matrices */
    struct sb_progress progress;            /* of all tensors, also of those that are not used */
    size_t half_bytes; /* of a half of the buffer: at least HALF_BYTES, and at least one row of
                          the matrix being loaded */
    unsigned types;    /* bit i: a matrix in memory is of type i */
    uint64_t elements[SB_DTYPES]; /* of the layers' matrices, by their type in memory */
    int is_quantised_here;        /* matrices were quantised, as the options say */
};

/* A linear map y = W x + b to be loaded: where it goes in the model, and its parts in the file,
 * which are stacked along the output. */
struct linear {
    struct sb_weight *weight;
    float **bias; /* where b goes; NULL: there never is one */
    const struct sb_tensor_spec *parts;
    int32_t n_parts;
    int32_t gated; /* rows of its gate, if it has one by silu above as many of up; else 0 */
    int is_table;  /* of tokens: the embedding or the head */
    int32_t experts, expert; /* of a mixture's expert: how many there are, and which it is. Their
                                biases are one vector, which the first one makes */
    int is_router; /* of a mixture. It is f32 in memory, whatever float type it comes in: GGUF files
                      have it in f32 beside matrices of another type, and so both containers give
                      the same bits in each class */
};

/* A part of a linear map on its way. */
struct part {
    const struct sb_tensor *tensor;
    enum sb_dtype stored, wanted; /* its type in the file, and the one asked of the backend */
    struct sb_weight *weight;     /* which of the chained weights takes its rows */
    int32_t first, rows;          /* which rows of it they are */
};

/* ---------------------------------------------------------------------- finding tensors */

/* Finds the tensor `name`, of [rows, n_in], or of [rows] when n_in is 0, and notes that it is used.
 */
static int32_t find(const struct sb_tensor **out, enum sb_dtype *dtype, struct loader *l,
                    const char *name, int32_t rows, int32_t n_in)
{
    const int32_t rc = sb_tensors_need(out, dtype, l->tensors, name, rows, n_in);

    if (rc == SPECBATCH_OK)
        l->used[*out - sb_tensors_at(l->tensors, 0)] = 1;
    return rc;
}

/* A part of a tensor that is being read. */
struct reading {
    struct loader *loader;
    const struct sb_tensor *tensor;
    uint64_t offset;
    char *into;
    size_t bytes;
};

static int32_t read_bytes(void *ctx)
{
    const struct reading *r = ctx;
    const struct sb_tensor *t = r->tensor;
    const int32_t rc = sb_tensors_read(r->loader->tensors, t, r->offset, r->into, r->bytes);

    if (rc != SPECBATCH_OK)
        return rc;
    if (r->offset == 0)
        sb_digest_add(&r->loader->digest, t->type, strlen(t->type) + 1);
    sb_digest_add(&r->loader->digest, r->into, r->bytes);
    return SPECBATCH_OK;
}

/* Fills in the rows that wait, and meanwhile reads, unless that is NULL. */
static int32_t fill_waiting(struct loader *l, struct reading *reading)
{
    const struct sb_filling filling = l->waiting;

    l->waiting.n = 0;
    return sb_filler_fill(l->filler, &filling, reading ? read_bytes : NULL, reading);
}

/* Reads a part of a tensor, which the model takes, to the half of the buffer that is free. A
 * tensor's parts are read one after the other. */
static int32_t read_part(char **out, struct loader *l, const struct sb_tensor *t, uint64_t offset,
                         size_t bytes)
{
    struct reading reading = {l, t, offset, l->buffer + (size_t)l->half * l->half_bytes, bytes};
    const int32_t rc = fill_waiting(l, &reading);

    if (rc != SPECBATCH_OK)
        return rc;
    *out = reading.into;
    return sb_progress_add(&l->progress, bytes);
}

/* ------------------------------------------------------------------------------ vectors */

/* Copies a vector's tensor to dev memory, as floats with `shift` added. A block is converted to
 * behind where it is read. */
static int32_t copy_vector(struct loader *l, float *dev, const char *name, int32_t n, float shift)
{
    const size_t block = l->half_bytes / 2 / sizeof(float);
    const struct sb_tensor *t = NULL;
    enum sb_dtype dtype = SB_F32;
    char *read;
    float *wide;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(find(&t, &dtype, l, name, n, 0));
    for (size_t at = 0, count; at < (size_t)n; at += count) {
        const size_t size = sb_dtype_size(dtype);
        count = (size_t)n - at < block ? (size_t)n - at : block;
        SB_TRY(read_part(&read, l, t, at * size, count * size));
        wide = (float *)(void *)(read + block * sizeof *wide);
        sb_convert(wide, SB_F32, read, dtype, count);
        for (size_t i = 0; shift != 0.0f && i < count; i++)
            wide[i] += shift;
        SB_TRY(l->model->backend->upload(NULL, dev + at, wide, count * sizeof *wide));
    }
done:
    return rc;
}

/* Allocates dev memory for a vector. */
static int32_t new_vector(float **out, struct loader *l, int64_t n)
{
    struct specbatch_model *m = l->model;
    void *dev = NULL;
    int32_t rc = m->backend->alloc(&dev, m->device, &m->mem, (size_t)n * sizeof(float));

    if (rc != SPECBATCH_OK)
        return rc;
    *out = dev;
    m->bytes += (size_t)n * sizeof(float);
    return SPECBATCH_OK;
}

/* Loads a vector, if the architecture has it, and adds `shift` to its elements. */
static int32_t load_vector(float **out, struct loader *l, const char *prefix,
                           const struct sb_tensor_spec *spec, float shift)
{
    char full[NAME_BYTES];
    const struct sb_tensor *t;
    enum sb_dtype dtype;
    int32_t rc = SPECBATCH_OK;

    if (!spec->name)
        return SPECBATCH_OK;
    snprintf(full, sizeof full, "%s%s", prefix, spec->name);
    SB_TRY(find(&t, &dtype, l, full, spec->rows, 0));
    SB_TRY(new_vector(out, l, spec->rows));
    SB_TRY(copy_vector(l, *out, full, spec->rows, shift));
done:
    return rc;
}

static int32_t load_norm(float **out, struct loader *l, const char *prefix,
                         const struct sb_tensor_spec *spec)
{
    return load_vector(out, l, prefix, spec, l->tensors->norm_shift);
}

/* ----------------------------------------------------------------------------- matrices */

/* Makes a half of the buffer hold at least so many bytes. It is called for tensors that the files
 * really have, since config.json alone must not decide how much memory is taken. */
static int32_t widen_buffer(struct loader *l, size_t bytes)
{
    const struct sb_mem *mem = &l->model->mem;
    int32_t rc = SPECBATCH_OK;

    if (bytes <= l->half_bytes)
        goto done;
    bytes += SB_MEM_ALIGN - 1;
    bytes -= bytes % SB_MEM_ALIGN; /* so that the other half is aligned, too */
    SB_TRY(fill_waiting(l, NULL));
    sb_free(mem, l->buffer);
    l->half_bytes = 0;
    SB_NEW(l->buffer, sb_alloc_raw(mem, bytes, 2), "weights");
    l->half_bytes = bytes;
done:
    return rc;
}

/* Finds the parts of a map. */
static int32_t find_parts(struct part parts[3], struct loader *l, const char *prefix,
                          const struct linear *map)
{
    char name[NAME_BYTES];
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < map->n_parts; i++) {
        struct part *part = &parts[i];
        snprintf(name, sizeof name, "%s%s.weight", prefix, map->parts[i].name);
        part->rows = map->parts[i].rows;
        SB_TRY(find(&part->tensor, &part->stored, l, name, part->rows, map->parts[i].n_in));
        if (!map->is_router)
            part->wanted = sb_weights_dtype(l->options->weights, part->stored, map->is_table);
        else
            part->wanted = sb_dtype_is_quantised(part->stored) ? part->stored : SB_F32;
    }
done:
    return rc;
}

/* Notes what a weight has become, for the model's description. */
static void note_weight(struct loader *l, const struct linear *map, const struct part *part)
{
    const struct sb_weight *weight = part->weight;

    l->model->bytes += weight->bytes;
    l->types |= 1u << weight->dtype;
    if (!map->is_table)
        l->elements[weight->dtype] += (uint64_t)weight->n_out * (uint64_t)weight->n_in;
    l->is_quantised_here |= part->stored != part->wanted && sb_dtype_is_quantised(part->wanted);
}

/* Makes the weights of a map: one for each run of parts that are wanted in one type. */
static int32_t create_weights(struct part parts[3], struct loader *l, const struct linear *map)
{
    struct specbatch_model *m = l->model;
    struct sb_weight *weight = map->weight;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0, end = 0, rows = 0; i < map->n_parts; i = end, rows = 0) {
        if (i > 0) {
            SB_NEW(weight->next, sb_alloc(&m->mem, 1, sizeof *weight), "weights");
            weight = weight->next;
        }
        for (end = i; end < map->n_parts && parts[end].wanted == parts[i].wanted; end++) {
            parts[end].weight = weight;
            parts[end].first = rows;
            rows += parts[end].rows;
        }
        weight->n_out = rows;
        weight->n_in = map->parts->n_in;
        weight->gated = rows == 2 * map->gated ? map->gated : 0;
        weight->is_of_expert = map->experts > 0;
        SB_TRY(m->backend->weight_create(weight, m->device, &m->mem, parts[i].wanted));
        note_weight(l, map, &parts[i]);
    }
done:
    return rc;
}

/* Reads the rows of a part, some at a time, which are filled in while the next are read. Those that
 * are quantised here are so in the buffer, behind the rows as they were read. */
static int32_t fill_part(struct loader *l, const struct part *part)
{
    struct sb_filling filling = {
        .weight = part->weight,
        .stored = part->stored,
        .given = sb_dtype_is_quantised(part->wanted) ? part->wanted : part->stored,
    };
    const size_t row = sb_dtype_row_bytes(part->stored, (size_t)part->weight->n_in);
    const size_t both = row + sb_filling_bytes(&filling);
    size_t block;
    char *rows;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(widen_buffer(l, both));
    block = l->half_bytes / both;
    block -= block > SB_FILL_ROWS ? block % SB_FILL_ROWS : 0;
    for (int32_t at = 0; at < part->rows; at += filling.n) {
        filling.n = (size_t)(part->rows - at) < block ? part->rows - at : (int32_t)block;
        filling.first = part->first + at;
        SB_TRY(read_part(&rows, l, part->tensor, (uint64_t)at * row, (size_t)filling.n * row));
        filling.rows = rows;
        filling.made = rows + (size_t)filling.n * row;
        l->waiting = filling;
        l->half = !l->half;
    }
done:
    return rc;
}

/* Loads the matrix of a linear map. All of its parts are found before any memory is taken. */
static int32_t load_matrix(struct loader *l, const char *prefix, const struct linear *map)
{
    struct part parts[3];
    int32_t rc = SPECBATCH_OK;

    SB_TRY(find_parts(parts, l, prefix, map));
    SB_TRY(create_weights(parts, l, map));
    for (int32_t i = 0; i < map->n_parts; i++)
        SB_TRY(fill_part(l, &parts[i]));
done:
    return rc;
}

/* Loads a linear map: its matrix and, if it has one, its bias. */
static int32_t load_linear(struct loader *l, const char *prefix, const struct linear *map)
{
    char name[NAME_BYTES];
    int32_t n_out = 0;
    int64_t at;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < map->n_parts; i++)
        n_out += map->parts[i].rows;
    SB_TRY(load_matrix(l, prefix, map));
    if (!map->parts->has_bias)
        goto done;
    if (map->expert == 0)
        SB_TRY(new_vector(map->bias, l, map->experts > 0 ? (int64_t)map->experts * n_out : n_out));
    at = (int64_t)map->expert * n_out;
    for (int32_t i = 0; i < map->n_parts; i++) {
        snprintf(name, sizeof name, "%s%s.bias", prefix, map->parts[i].name);
        SB_TRY(copy_vector(l, *map->bias + at, name, map->parts[i].rows, 0.0f));
        at += map->parts[i].rows;
    }
done:
    return rc;
}

/* ------------------------------------------------------------------------ the whole model */

/* Loads the MLP of layer `index`, or an expert of it. The specs of its tensors are among those of
 * the layer. */
static int32_t load_mlp(struct loader *l, struct sb_mlp *mlp, int32_t index, int32_t expert,
                        const struct sb_tensor_spec t[SB_LAYER_TENSORS])
{
    const struct sb_config *c = &l->model->config;
    const int32_t inter = sb_config_inter_of(c, index);
    const int32_t experts = sb_config_experts_of(c, index);
    struct sb_layer *layer = &l->model->layers[index];
    const struct linear gate_up = {&mlp->gate_up,
                                   &layer->gate_up_bias,
                                   &t[SB_TENSOR_GATE],
                                   .n_parts = c->arch->gate_up[1] ? 2 : 1,
                                   .gated = c->arch->gate == SB_GATE_SILU ? inter : 0,
                                   .experts = experts,
                                   .expert = expert},
                        down = {&mlp->down,   &layer->down_bias,  &t[SB_TENSOR_DOWN],
                                .n_parts = 1, .experts = experts, .expert = expert};
    char prefix[SB_PREFIX_BYTES];
    int32_t rc = SPECBATCH_OK;

    sb_mlp_prefix(prefix, c, index, expert);
    SB_TRY(load_linear(l, prefix, &gate_up));
    SB_TRY(load_linear(l, prefix, &down));
done:
    return rc;
}

/* Loads the router and the experts of a layer. */
static int32_t load_mixture(struct loader *l, const char *prefix, int32_t index,
                            const struct sb_tensor_spec t[SB_LAYER_TENSORS])
{
    struct specbatch_model *m = l->model;
    struct sb_layer *layer = &m->layers[index];
    const int32_t experts = sb_config_experts_of(&m->config, index);
    const struct linear router = {&layer->router, &layer->router_bias, &t[SB_TENSOR_ROUTER],
                                  .n_parts = 1, .is_router = 1};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(load_linear(l, prefix, &router));
    SB_TRY(load_vector(&layer->choice_bias, l, prefix, &t[SB_TENSOR_CHOICE_BIAS], 0.0f));
    SB_NEW(layer->experts, sb_alloc(&m->mem, (size_t)experts, sizeof *layer->experts), "experts");
    for (int32_t e = 0; e < experts; e++)
        SB_TRY(load_mlp(l, &layer->experts[e], index, e, t));
done:
    return rc;
}

static int32_t load_layer(struct loader *l, int32_t index)
{
    const struct sb_config *c = &l->model->config;
    struct sb_layer *layer = &l->model->layers[index];
    struct sb_tensor_spec t[SB_LAYER_TENSORS];
    const struct linear maps[] = {
        {&layer->qkv, &layer->qkv_bias, &t[SB_TENSOR_Q], .n_parts = c->arch->qkv[1] ? 3 : 1},
        {&layer->o, &layer->o_bias, &t[SB_TENSOR_O], .n_parts = 1},
    };
    float **const norms[] = {[SB_TENSOR_ATTN_NORM] = &layer->attn_norm,
                             [SB_TENSOR_POST_ATTN_NORM] = &layer->post_attn_norm,
                             [SB_TENSOR_FFN_NORM] = &layer->ffn_norm,
                             [SB_TENSOR_POST_FFN_NORM] = &layer->post_ffn_norm,
                             [SB_TENSOR_Q_NORM] = &layer->q_norm,
                             [SB_TENSOR_K_NORM] = &layer->k_norm};
    char prefix[SB_PREFIX_BYTES];
    int32_t rc = SPECBATCH_OK;

    sb_layer_tensor_specs(t, c, index);
    snprintf(prefix, sizeof prefix, "model.layers.%d.", (int)index);
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        SB_TRY(load_norm(norms[i], l, prefix, &t[i]));
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        SB_TRY(load_linear(l, prefix, &maps[i]));
    SB_TRY(load_vector(&layer->sinks, l, prefix, &t[SB_TENSOR_SINKS], 0.0f));
    if (sb_config_experts_of(c, index) > 0)
        SB_TRY(load_mixture(l, prefix, index, t));
    else
        SB_TRY(load_mlp(l, &layer->mlp, index, 0, t));
done:
    return rc;
}

/* The head of a tied model may be there too, as a copy. No rows wait in the buffer yet. */
static int32_t check_tied(struct loader *l)
{
    const struct sb_config *c = &l->model->config;
    const struct sb_tensor *head = sb_tensors_find(l->tensors, "lm_head.weight");

    if (!head)
        return SPECBATCH_OK;
    l->used[head - sb_tensors_at(l->tensors, 0)] = 1;
    return sb_tensors_check_tied(l->tensors, c->vocab, c->hidden, l->buffer, 2 * l->half_bytes);
}

/* Loads what is not part of a layer: embedding, final norm and head. */
static int32_t load_ends(struct loader *l)
{
    struct specbatch_model *m = l->model;
    const struct sb_config *c = &m->config;
    const struct sb_tensor_spec table = {"model.embed_tokens", c->vocab, c->hidden, 0},
                                norm = {"model.norm.weight", c->hidden, 0, 0},
                                top = {"lm_head", c->vocab, c->hidden, 0};
    const struct linear embed = {.weight = &m->embed, .parts = &table, .n_parts = 1, .is_table = 1},
                        head = {.weight = &m->head, .parts = &top, .n_parts = 1, .is_table = 1};
    int32_t rc = SPECBATCH_OK;

    if (c->tied)
        SB_TRY(check_tied(l));
    SB_TRY(load_linear(l, "", &embed));
    SB_TRY(load_norm(&m->final_norm, l, "", &norm));
    if (c->tied)
        m->head = m->embed;
    else
        SB_TRY(load_linear(l, "", &head));
done:
    return rc;
}

/* Warns of tensors that were not used. They are no error: a checkpoint may hold an adapter or a
 * value head too. The rotary frequencies in old Llama files are passed over in silence, as they are
 * computed here; those of GGUF files are part of the configuration. */
static void warn_unused(const struct loader *l, const char *path)
{
    static const char ignored[] = ".rotary_emb.inv_freq";
    const char *first = NULL;
    char place[200];
    int32_t n = 0;

    for (int32_t i = 0; i < sb_tensors_count(l->tensors); i++) {
        const char *name = sb_tensors_at(l->tensors, i)->name;
        const size_t length = strlen(name);
        if (l->used[i] || strncmp(name, "rope_", 5) == 0 ||
            (length >= sizeof ignored &&
             strcmp(name + length - (sizeof ignored - 1), ignored) == 0))
            continue;
        n++;
        first = first ? first : name;
    }
    sb_line_path(place, sizeof place, path);
    if (n > 0)
        sb_log(&l->model->log, SPECBATCH_LOG_WARN,
               "%s: %d tensors of the checkpoint are not used, the first is %.200s", place, (int)n,
               first);
}

/* Writes which types the matrices have, "q8_0+q4_0", and of which of them the layers have most. */
static void name_types(const struct loader *l)
{
    struct specbatch_model *m = l->model;
    size_t used = 0;

    for (int type = 0; type < SB_DTYPES; type++) {
        if (l->elements[type] > l->elements[m->dtype])
            m->dtype = (enum sb_dtype)type;
        if (l->types >> type & 1u)
            used += (size_t)snprintf(m->types + used, sizeof m->types - used, "%s%s",
                                     used ? "+" : "", sb_dtype_name((enum sb_dtype)type));
    }
    if (l->is_quantised_here)
        snprintf(m->types + used, sizeof m->types - used, "; weights %s",
                 l->options->weights == SPECBATCH_WEIGHTS_Q4 ? "q4" : "q8");
}

int32_t sb_model_weights_load(struct specbatch_model *model, const struct sb_tensors *tensors,
                              const char *path, const specbatch_model_options *options)
{
    const struct sb_config *c = &model->config;
    struct loader l = {.model = model,
                       .tensors = tensors,
                       .options = options,
                       .half_bytes = HALF_BYTES,
                       .progress = {options, "loading", 0, 0}};
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < sb_tensors_count(l.tensors); i++)
        l.progress.total += sb_tensors_at(l.tensors, i)->bytes;
    SB_NEW(l.used, sb_alloc(&model->mem, (size_t)sb_tensors_count(l.tensors), 1), "weights");
    SB_NEW(l.buffer, sb_alloc_raw(&model->mem, l.half_bytes, 2), "weights");
    SB_TRY(
        sb_filler_create(&l.filler, &model->mem, model->backend, model->device, l.progress.total));
    SB_NEW(model->layers, sb_alloc(&model->mem, (size_t)c->layers, sizeof *model->layers),
           "layers");
    sb_digest_begin(&l.digest);
    sb_config_digest(c, &l.digest);
    SB_TRY(load_ends(&l));
    for (int32_t i = 0; i < c->layers; i++)
        SB_TRY(load_layer(&l, i));
    SB_TRY(fill_waiting(&l, NULL));
    SB_TRY(sb_progress_end(&l.progress));
    name_types(&l);
    warn_unused(&l, path);
    sb_digest_end(&l.digest, model->digest);
done:
    sb_filler_free(l.filler);
    sb_free(&model->mem, l.buffer);
    sb_free(&model->mem, l.used);
    return rc;
}

static void free_weight(struct specbatch_model *m, struct sb_weight *weight)
{
    if (weight->next) {
        free_weight(m, weight->next);
        sb_free(&m->mem, weight->next);
    }
    if (weight->data)
        m->backend->weight_free(weight, m->device, &m->mem);
    memset(weight, 0, sizeof *weight);
}

static void free_vector(struct specbatch_model *m, float *vector)
{
    if (vector)
        m->backend->free(m->device, &m->mem, vector);
}

static void free_mlp(struct specbatch_model *m, struct sb_mlp *mlp)
{
    free_weight(m, &mlp->gate_up);
    free_weight(m, &mlp->down);
}

void sb_model_weights_free(struct specbatch_model *m)
{
    for (int32_t i = 0; m->layers && i < m->config.layers; i++) {
        struct sb_layer *layer = &m->layers[i];
        float *const vectors[] = {layer->attn_norm,     layer->post_attn_norm, layer->ffn_norm,
                                  layer->post_ffn_norm, layer->q_norm,         layer->k_norm,
                                  layer->qkv_bias,      layer->o_bias,         layer->sinks,
                                  layer->gate_up_bias,  layer->down_bias,      layer->router_bias,
                                  layer->choice_bias};
        for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++)
            free_vector(m, vectors[v]);
        free_weight(m, &layer->qkv);
        free_weight(m, &layer->o);
        free_weight(m, &layer->router);
        free_mlp(m, &layer->mlp);
        for (int32_t e = 0; layer->experts && e < sb_config_experts_of(&m->config, i); e++)
            free_mlp(m, &layer->experts[e]);
        sb_free(&m->mem, layer->experts);
    }
    sb_free(&m->mem, m->layers);
    m->layers = NULL;
    free_vector(m, m->final_norm);
    m->final_norm = NULL;
    if (m->head.data == m->embed.data)
        memset(&m->head, 0, sizeof m->head);
    free_weight(m, &m->head);
    free_weight(m, &m->embed);
}
