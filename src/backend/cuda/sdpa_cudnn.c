/*
 * Attention as an operation graph of cuDNN's backend API. In 9.19 the single attention operation
 * has no causal mask, so the graph is the composite one that cuDNN's engines recognise, operation
 * by operation as in NVIDIA's cudnn-frontend (node/scaled_dot_product_flash_attention.h,
 * diagonal_band_mask.h, softmax.h; read, not copied):
 *
 *   S = Q K^T      C = S scale
 *   row, col = indices of C         allowed = row + n_kv - n_q >= col (the mask ends bottom right)
 *   M = allowed ? C : -inf
 *   X = max M      E = exp(M - X)   P = E / sum E                     (P 16 bit, all else f32)
 *   O = P V                         T = X + log sum E                 (f32, in memory)
 *
 * The tensors from S to P are virtual, which means that they exist in a kernel's registers only.
 * For grouped heads, the products broadcast K and V over the query heads.
 *
 * T, which a backward pass would need, is read by nobody, and it must be there. On an H100 with
 * cuDNN 9.19.0, these graphs were tried:
 *
 *   shapes, kernel              without T                             with T
 *   fixed, one a plan           its kernel writes T all the same,     passes the self-test
 *                               to an address that nobody gave
 *   arguments, one in a cache   the same                              no engine passes
 *
 * So T lies in front of the workspace, and the graph has fixed shapes: NVRTC compiles every plan's
 * kernel, which takes a quarter of a second. X and sum E as outputs in T's place pass no test.
 *
 *   tensors ---> operations ---> graph ---> engine + knobs ---> configuration ---> plan
 *
 * A plan keeps its descriptors, since cuDNN does not say which of them it copies.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn_api.h"
#include "backend/cuda/sdpa.h"
#include "status.h"

enum {
    OLDEST = 91100, /* earlier versions have known faults in attention and no deterministic
                       reductions */
    MOST_DESCRIPTORS = 80,
    MOST_CONFIGS = 16,
    MOST_NOTES = 16,
    ALIGNED = 256 /* bytes, of the workspace */
};

/* The tensors that a call gives the addresses of, by their unique ids; virtual ones follow. */
enum { Q = 1, K, V, O, T, SCALE, LOWEST, ROWS, KEYS, FIRST_VIRTUAL };

/* Descriptors that are made and freed together. After the first failure nothing more is done, so a
 * caller need not look at every step. */
struct builder {
    const struct sb_cudnn *api;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t made[MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[MOST_DESCRIPTORS];
    int n_made, n_operations;
    int64_t next_id;
    cudnnStatus_t status;
};

struct sb_sdpa {
    struct sb_mem mem;
    struct sb_cudnn api;
    cudnnHandle_t handle;
};

struct sb_sdpa_plan {
    struct builder built;
    cudnnBackendDescriptor_t plan;
    size_t statistics, workspace; /* bytes of T, and of cuDNN's workspace behind it */
    int32_t n_q, n_kv;
};

/* ------------------------------------------------------------------ building */

static cudnnBackendDescriptor_t make(struct builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;

    if (b->status == CUDNN_STATUS_SUCCESS && b->n_made == MOST_DESCRIPTORS)
        b->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (b->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    b->status = b->api->make(type, &made);
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->made[b->n_made++] = made;
    return made;
}

static void set(struct builder *b, cudnnBackendDescriptor_t on, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->api->set(on, name, type, count, values);
}

static void set_descriptor(struct builder *b, cudnnBackendDescriptor_t on,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    set(b, on, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct builder *b, cudnnBackendDescriptor_t descriptor)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->api->finalize(descriptor);
}

static void unmake_all(struct builder *b)
{
    while (b->n_made > 0)
        (void)b->api->unmake(b->made[--b->n_made]);
}

/* ------------------------------------------------------------------- tensors */

enum kind { IN_MEMORY, BY_VALUE, VIRTUAL };

static cudnnBackendDescriptor_t tensor(struct builder *b, int64_t id, enum kind kind,
                                       cudnnDataType_t type, const int64_t dims[4],
                                       const int64_t strides[4])
{
    const int64_t alignment = 16;
    const bool yes = 1;
    cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (kind == VIRTUAL)
        set(b, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == BY_VALUE)
        set(b, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finalize(b, t);
    return t;
}

static cudnnBackendDescriptor_t scalar(struct builder *b, int64_t id, cudnnDataType_t type)
{
    const int64_t ones[4] = {1, 1, 1, 1};

    return tensor(b, id, BY_VALUE, type, ones, ones);
}

/* A result for every head, query and key, or with n_kv = 1 for every head and query; packed. */
static cudnnBackendDescriptor_t packed(struct builder *b, int64_t id, enum kind kind,
                                       const struct sb_sdpa_shape *s, cudnnDataType_t type,
                                       int64_t n_kv)
{
    const int64_t dims[4] = {1, s->heads, s->n_q, n_kv};
    const int64_t strides[4] = {s->heads * s->n_q * n_kv, s->n_q * n_kv, n_kv, 1};

    return tensor(b, id, kind, type, dims, strides);
}

/* An intermediate one. */
static cudnnBackendDescriptor_t scores(struct builder *b, const struct sb_sdpa_shape *s,
                                       cudnnDataType_t type, int64_t n_kv)
{
    return packed(b, b->next_id++, VIRTUAL, s, type, n_kv);
}

/* ---------------------------------------------------------------- operations */

static void add_operation(struct builder *b, cudnnBackendDescriptor_t operation)
{
    finalize(b, operation);
    b->operations[b->n_operations++] = operation;
}

static void matmul(struct builder *b, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t with,
                   cudnnBackendDescriptor_t into)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

    set(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    finalize(b, how);
    op = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, with);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, into);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_operation(b, op);
}

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    int64_t axis;                     /* of GEN_INDEX */
    cudnnBackendDescriptor_t x, b, t; /* operands; b and t may be NULL */
};

static cudnnBackendDescriptor_t pointwise(struct builder *b, const struct pointwise *p,
                                          cudnnBackendDescriptor_t into)
{
    const float one = 1.0f;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

    set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->precision);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    finalize(b, how);
    op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, into);
    if (p->b)
        set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    if (p->t)
        set_descriptor(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set(b, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add_operation(b, op);
    return into;
}

/* Reduces x over the keys. */
static cudnnBackendDescriptor_t reduce(struct builder *b, cudnnReduceTensorOp_t with,
                                       cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t into)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const bool yes = 1;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;

    set(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &with);
    set(b, how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finalize(b, how);
    op = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, into);
    add_operation(b, op);
    return into;
}

/* --------------------------------------------------------------------- graph */

/* M: C where the key is not after the query, else -inf. */
static cudnnBackendDescriptor_t mask(struct builder *b, const struct sb_sdpa_shape *s,
                                     cudnnBackendDescriptor_t c)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, i32 = CUDNN_DATA_INT32,
                          truth = CUDNN_DATA_BOOLEAN;
    cudnnBackendDescriptor_t row, col, allowed;

    row = pointwise(
        b,
        &(struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX, .precision = f32, .axis = 2, .x = c},
        scores(b, s, i32, s->n_kv));
    col = pointwise(
        b,
        &(struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX, .precision = f32, .axis = 3, .x = c},
        scores(b, s, i32, s->n_kv));
    row = pointwise(
        b,
        &(struct pointwise){
            .mode = CUDNN_POINTWISE_ADD, .precision = i32, .x = row, .b = scalar(b, KEYS, i32)},
        scores(b, s, i32, s->n_kv));
    row = pointwise(
        b,
        &(struct pointwise){
            .mode = CUDNN_POINTWISE_SUB, .precision = i32, .x = row, .b = scalar(b, ROWS, i32)},
        scores(b, s, i32, s->n_kv));
    allowed = pointwise(
        b,
        &(struct pointwise){.mode = CUDNN_POINTWISE_CMP_GE, .precision = truth, .x = row, .b = col},
        scores(b, s, truth, s->n_kv));
    return pointwise(b,
                     &(struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                         .precision = f32,
                                         .x = c,
                                         .b = scalar(b, LOWEST, f32),
                                         .t = allowed},
                     scores(b, s, f32, s->n_kv));
}

/* P, and T beside it. */
static cudnnBackendDescriptor_t softmax(struct builder *b, const struct sb_sdpa_shape *s,
                                        cudnnDataType_t type, cudnnBackendDescriptor_t m)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t top, less, e, sum, log_sum;

    top = reduce(b, CUDNN_REDUCE_TENSOR_MAX, m, scores(b, s, f32, 1));
    less = pointwise(
        b, &(struct pointwise){.mode = CUDNN_POINTWISE_SUB, .precision = f32, .x = m, .b = top},
        scores(b, s, f32, s->n_kv));
    e = pointwise(b, &(struct pointwise){.mode = CUDNN_POINTWISE_EXP, .precision = f32, .x = less},
                  scores(b, s, f32, s->n_kv));
    sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, e, scores(b, s, f32, 1));
    log_sum = pointwise(
        b, &(struct pointwise){.mode = CUDNN_POINTWISE_LOG, .precision = f32, .x = sum},
        scores(b, s, f32, 1));
    (void)pointwise(
        b,
        &(struct pointwise){.mode = CUDNN_POINTWISE_ADD, .precision = f32, .x = top, .b = log_sum},
        packed(b, T, IN_MEMORY, s, f32, 1));
    return pointwise(
        b, &(struct pointwise){.mode = CUDNN_POINTWISE_DIV, .precision = f32, .x = e, .b = sum},
        scores(b, s, type, s->n_kv));
}

/* The finalized graph, or NULL; then b->status says why. */
static cudnnBackendDescriptor_t make_graph(struct builder *b, const struct sb_sdpa_shape *s)
{
    const cudnnDataType_t type = s->type == SB_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
                          f32 = CUDNN_DATA_FLOAT;
    const int64_t d = s->head_dim, n_q = s->n_q, n_kv = s->n_kv, heads = s->heads,
                  kv_heads = s->kv_heads;
    cudnnBackendDescriptor_t q, k, v, y, product, scaled, weights, graph;

    b->next_id = FIRST_VIRTUAL;
    q = tensor(b, Q, IN_MEMORY, type, (int64_t[]){1, heads, n_q, d},
               (int64_t[]){n_q * heads * d, d, heads * d, 1});
    k = tensor(b, K, IN_MEMORY, type, (int64_t[]){1, kv_heads, d, n_kv},
               (int64_t[]){kv_heads * s->kv_ld, s->kv_ld, 1, d});
    v = tensor(b, V, IN_MEMORY, type, (int64_t[]){1, kv_heads, n_kv, d},
               (int64_t[]){kv_heads * s->kv_ld, s->kv_ld, d, 1});
    y = tensor(b, O, IN_MEMORY, type, (int64_t[]){1, heads, n_q, d},
               (int64_t[]){n_q * s->y_ld, d, s->y_ld, 1});
    product = scores(b, s, f32, n_kv);
    matmul(b, q, k, product);
    scaled = pointwise(b,
                       &(struct pointwise){.mode = CUDNN_POINTWISE_MUL,
                                           .precision = f32,
                                           .x = product,
                                           .b = scalar(b, SCALE, f32)},
                       scores(b, s, f32, n_kv));
    weights = softmax(b, s, type, mask(b, s, scaled));
    matmul(b, weights, v, y);
    graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->n_operations,
        b->operations);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->handle);
    finalize(b, graph);
    return b->status == CUDNN_STATUS_SUCCESS ? graph : NULL;
}

/* ------------------------------------------------------------------- engines */

static int64_t get(struct builder *b, cudnnBackendDescriptor_t from,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                   void *values)
{
    int64_t count = 0;

    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->api->get(from, name, type, most, &count, values);
    return b->status != CUDNN_STATUS_SUCCESS ? 0 : count < most ? count : most;
}

/* Makes empty descriptors. Where cuDNN returns descriptors, it fills such ones. */
static void make_several(struct builder *b, cudnnBackendDescriptorType_t type,
                         cudnnBackendDescriptor_t *made, int n)
{
    for (int i = 0; i < n; i++)
        made[i] = make(b, type);
}

static int is_deterministic(struct builder *b, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    const int64_t n = get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          MOST_NOTES, notes);

    for (int64_t i = 0; i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return 0;
    return b->status == CUDNN_STATUS_SUCCESS;
}

/* Reads the engine and its knobs from a configuration that the heuristic gave. Returns 0 where it
 * cannot be used. */
static int read_config(struct sb_sdpa_engine *engine, const struct sb_sdpa *sdpa,
                       cudnnBackendDescriptor_t config)
{
    struct builder b = {.api = &sdpa->api};
    cudnnBackendDescriptor_t from = make(&b, CUDNN_BACKEND_ENGINE_DESCRIPTOR),
                             choices[SB_SDPA_KNOBS];
    int64_t n;
    int good;

    memset(engine, 0, sizeof *engine);
    make_several(&b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, choices, SB_SDPA_KNOBS);
    good = get(&b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &from) ==
               1 &&
           is_deterministic(&b, from) &&
           get(&b, from, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine->id) == 1;
    n = get(&b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            SB_SDPA_KNOBS, choices);
    for (int64_t i = 0; i < n; i++) {
        cudnnBackendKnobType_t knob = CUDNN_KNOB_TYPE_COUNTS;
        (void)get(&b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
        (void)get(&b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                  &engine->knobs[i].value);
        engine->knobs[i].knob = (int32_t)knob;
    }
    engine->n_knobs = (int32_t)n;
    good = good && b.status == CUDNN_STATUS_SUCCESS;
    unmake_all(&b);
    return good;
}

static int32_t ask(const struct sb_sdpa *sdpa, cudnnBackendDescriptor_t graph,
                   cudnnBackendHeurMode_t mode, struct sb_sdpa_engine *engines, int32_t most)
{
    struct builder b = {.api = &sdpa->api};
    cudnnBackendDescriptor_t heuristic = make(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
                             configs[MOST_CONFIGS];
    int32_t found = 0;
    int64_t n;

    set_descriptor(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(&b, heuristic);
    make_several(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, configs, MOST_CONFIGS);
    n = get(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            MOST_CONFIGS, configs);
    for (int64_t i = 0; i < n && found < most; i++)
        found += read_config(&engines[found], sdpa, configs[i]);
    unmake_all(&b);
    return found;
}

int32_t sb_sdpa_engines(struct sb_sdpa *sdpa, const struct sb_sdpa_shape *shape,
                        struct sb_sdpa_engine *engines, int32_t most)
{
    struct builder b = {.api = &sdpa->api, .handle = sdpa->handle};
    cudnnBackendDescriptor_t graph = make_graph(&b, shape);
    int32_t n = 0;

    if (graph) {
        n = ask(sdpa, graph, CUDNN_HEUR_MODE_A, engines, most);
        n += ask(sdpa, graph, CUDNN_HEUR_MODE_FALLBACK, engines + n, most - n);
    }
    unmake_all(&b);
    return n;
}

/* --------------------------------------------------------------------- plans */

static cudnnBackendDescriptor_t make_config(struct builder *b, cudnnBackendDescriptor_t graph,
                                            const struct sb_sdpa_engine *with)
{
    cudnnBackendDescriptor_t engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR), config,
                             choices[SB_SDPA_KNOBS];

    set_descriptor(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &with->id);
    finalize(b, engine);
    for (int32_t i = 0; i < with->n_knobs; i++) {
        const cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)with->knobs[i].knob;
        choices[i] = make(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
        set(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
            &with->knobs[i].value);
        finalize(b, choices[i]);
    }
    config = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_descriptor(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (with->n_knobs > 0)
        set(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            with->n_knobs, choices);
    finalize(b, config);
    return config;
}

int32_t sb_sdpa_plan_create(struct sb_sdpa_plan **out, struct sb_sdpa *sdpa)
{
    int32_t rc = SPECBATCH_OK;

    SB_NEW(*out, sb_alloc(&sdpa->mem, 1, sizeof **out), "a plan of attention");
done:
    return rc;
}

int32_t sb_sdpa_plan_make(int *made, struct sb_sdpa_plan *plan, struct sb_sdpa *sdpa,
                          const struct sb_sdpa_shape *shape, const struct sb_sdpa_engine *engine)
{
    cudnnBackendDescriptor_t graph, config;
    struct builder *b = &plan->built;
    int64_t workspace = 0;

    b->api = &sdpa->api;
    b->handle = sdpa->handle;
    plan->n_q = shape->n_q;
    plan->n_kv = shape->n_kv;
    graph = make_graph(b, shape);
    config = make_config(b, graph, engine);
    plan->plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(b, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &sdpa->handle);
    set_descriptor(b, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(b, plan->plan);
    (void)get(b, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
              &workspace);
    if (b->status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for a plan of attention");
    *made = b->status == CUDNN_STATUS_SUCCESS && workspace >= 0;
    plan->workspace = *made ? (size_t)workspace : 0;
    plan->statistics = ((size_t)shape->heads * (size_t)shape->n_q * sizeof(float) + ALIGNED - 1) /
                       ALIGNED * ALIGNED;
    return SPECBATCH_OK;
}

void sb_sdpa_plan_unmake(struct sb_sdpa_plan *plan)
{
    unmake_all(&plan->built);
}

void sb_sdpa_plan_free(struct sb_sdpa *sdpa, struct sb_sdpa_plan *plan)
{
    if (!plan)
        return;
    sb_sdpa_plan_unmake(plan);
    sb_free(&sdpa->mem, plan);
}

size_t sb_sdpa_workspace(const struct sb_sdpa_plan *plan)
{
    return plan->statistics + plan->workspace;
}

int sb_sdpa_run(struct sb_sdpa *sdpa, const struct sb_sdpa_plan *plan,
                const struct sb_sdpa_call *call)
{
    const int64_t ids[] = {Q, K, V, O, T, SCALE, LOWEST, ROWS, KEYS};
    const int64_t n = sizeof ids / sizeof ids[0];
    float scale = call->scale, lowest = -INFINITY;
    int32_t rows = plan->n_q, keys = plan->n_kv;
    const void *at[] = {call->q, call->k, call->v, call->y, call->workspace,
                        &scale,  &lowest, &rows,   &keys};
    const void *workspace = (char *)call->workspace + plan->statistics;
    struct builder b = {.api = &sdpa->api,
                        .status = sdpa->api.set_stream(sdpa->handle, call->stream)};
    cudnnBackendDescriptor_t pack = make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&b, pack);
    if (b.status == CUDNN_STATUS_SUCCESS)
        b.status = sdpa->api.execute(sdpa->handle, plan->plan, pack);
    unmake_all(&b);
    return b.status == CUDNN_STATUS_SUCCESS;
}

/* ------------------------------------------------------------------- library */

int32_t sb_sdpa_open(struct sb_sdpa **out, const struct sb_mem *mem, char *why, size_t why_size)
{
    struct sb_sdpa *sdpa = NULL;
    cudnnStatus_t status;
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    SB_NEW(sdpa, sb_alloc(mem, 1, sizeof *sdpa), "cuDNN");
    sdpa->mem = *mem;
    if (!sb_cudnn_load(&sdpa->api, why, why_size))
        goto done;
    if (sdpa->api.version() < OLDEST || sdpa->api.version() / 10000 != CUDNN_MAJOR) {
        snprintf(why, why_size, "cuDNN is %zu; %d and later of version %d will do",
                 sdpa->api.version(), OLDEST, CUDNN_MAJOR);
        goto done;
    }
    status = sdpa->api.create(&sdpa->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(why, why_size, "cuDNN does not start (%d)", (int)status);
        goto done;
    }
    *out = sdpa;
    sdpa = NULL;
done:
    sb_sdpa_close(sdpa);
    return rc;
}

void sb_sdpa_close(struct sb_sdpa *sdpa)
{
    struct sb_mem mem;

    if (!sdpa)
        return;
    mem = sdpa->mem;
    if (sdpa->handle)
        (void)sdpa->api.destroy(sdpa->handle);
    sb_free(&mem, sdpa);
}

size_t sb_sdpa_version(const struct sb_sdpa *sdpa)
{
    return sdpa->api.version();
}
