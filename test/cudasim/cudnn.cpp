/*
 * cuDNN's backend API, as far as the library uses it. Descriptors keep their attributes. A plan is
 * run by carrying out the operations of its graph one after the other, each on whole tensors. So a
 * test shows what the graph says, with its mask, strides and broadcasts. That it is attention is
 * known here in one respect: as the kernels of cuDNN 9.19 do on an H100, a plan writes a softmax's
 * statistics even if the graph does not have them as a result, and then to an address that nobody
 * gave.
 *
 *   products     one f32 sum over ascending k, heads of the right side repeated
 *   reductions   over ascending keys
 *   16-bit       virtual tensors of that type are rounded as those in memory are
 *
 * The heuristic offers in this order: engine 7, which calls itself nondeterministic and is; engine
 * 3 with a knob; and as a fallback engine 1, which has other bits than 3 because it divides at the
 * end. So a caller cannot just take the first. Engines refuse a graph that is not finalized.
 *
 * cudasim_break_cudnn has the ways in which a library may break the contract.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <map>
#include <memory>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "sim.h"

extern "C" {
#include "backend/cuda/cudnn_api.h"
}

using namespace cudasim;

struct cudnnContext {
    cudaStream_t stream;
};

namespace
{

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool is_finished = false;
    std::map<int, attribute> attributes;
};

size_t version_there; /* 0: there is no library */
cudasim_cudnn_fault fault_now;
int64_t fault_argument, calls;

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

template <typename V>
V value(const descriptor *d, int name, V otherwise = V())
{
    auto found = d->attributes.find(name);
    if (found == d->attributes.end() || found->second.bytes.size() < sizeof(V))
        return otherwise;
    memcpy(&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
}

const descriptor *child(const descriptor *d, int name)
{
    return (const descriptor *)value<void *>(d, name);
}

template <typename V>
void put(descriptor *d, int name, cudnnBackendAttributeType_t type, V v)
{
    const char *bytes = (const char *)&v;
    d->attributes[name] = {type, 1, std::vector<char>(bytes, bytes + sizeof v)};
}

/* ------------------------------------------------------------------ graphs */

/* A tensor of a graph, copied from its descriptor, because plans outlive descriptors. */
struct tensor {
    int64_t id, dims[4], strides[4];
    cudnnDataType_t type;
    bool is_virtual, is_by_value;
    int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    int64_t bytes() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; } /* of one in memory */
};

struct operation {
    enum { PRODUCT, POINTWISE, REDUCTION } kind;
    int mode;
    int64_t axis;
    tensor x, b, t, y;
    bool has_b, has_t;
};

struct plan {
    std::vector<operation> operations;
    int64_t engine;
};

bool read_tensor(tensor *t, const descriptor *d)
{
    if (!d || d->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || !d->is_finished)
        return false;
    t->id = value<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t->type = value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t->is_virtual = value<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t->is_by_value = value<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    memcpy(t->dims, d->attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS).bytes.data(), sizeof t->dims);
    memcpy(t->strides, d->attributes.at(CUDNN_ATTR_TENSOR_STRIDES).bytes.data(), sizeof t->strides);
    return true;
}

bool read_operation(operation *o, const descriptor *d)
{
    *o = operation();
    if (!d || !d->is_finished)
        return false;
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        o->kind = operation::PRODUCT;
        o->has_b = true;
        return read_tensor(&o->x, child(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC)) &&
               read_tensor(&o->b, child(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC)) &&
               read_tensor(&o->y, child(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC)) &&
               child(d, CUDNN_ATTR_OPERATION_MATMUL_DESC)->is_finished;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        o->kind = operation::POINTWISE;
        o->mode = value<int>(child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                             CUDNN_ATTR_POINTWISE_MODE);
        o->axis = value<int64_t>(child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                                 CUDNN_ATTR_POINTWISE_AXIS);
        o->has_b = read_tensor(&o->b, child(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        o->has_t = read_tensor(&o->t, child(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
        return read_tensor(&o->x, child(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) &&
               read_tensor(&o->y, child(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        o->kind = operation::REDUCTION;
        o->mode = value<int>(child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                             CUDNN_ATTR_REDUCTION_OPERATOR);
        return read_tensor(&o->x, child(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)) &&
               read_tensor(&o->y, child(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    default:
        return false;
    }
}

bool read_graph(std::vector<operation> *operations, const descriptor *graph)
{
    if (!graph || graph->type != CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR ||
        !graph->attributes.count(CUDNN_ATTR_OPERATIONGRAPH_OPS))
        return false;
    const attribute &ops = graph->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    operations->resize((size_t)ops.count);
    for (size_t i = 0; i < operations->size(); i++)
        if (!read_operation(&(*operations)[i],
                            ((const descriptor *const *)(const void *)ops.bytes.data())[i]))
            return false;
    return !operations->empty();
}

/* ------------------------------------------------------------------ running */

typedef std::vector<float> values; /* packed */

float rounded(float v, cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(__float2bfloat16_rn(v))
           : type == CUDNN_DATA_HALF   ? __half2float(__float2half_rn(v))
                                       : v;
}

float load(const char *at, cudnnDataType_t type)
{
    unsigned short half;
    float whole;
    if (type == CUDNN_DATA_FLOAT) {
        memcpy(&whole, at, 4);
        return whole;
    }
    memcpy(&half, at, 2);
    return type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(__ushort_as_bfloat16(half))
                                       : __half2float(__ushort_as_half(half));
}

void store(char *at, cudnnDataType_t type, float v)
{
    const unsigned short half = type == CUDNN_DATA_BFLOAT16
                                    ? __bfloat16_as_ushort(__float2bfloat16_rn(v))
                                    : __half_as_ushort(__float2half_rn(v));
    if (type == CUDNN_DATA_FLOAT)
        memcpy(at, &v, 4);
    else
        memcpy(at, &half, 2);
}

/* Calls f(packed index, offset in memory) for each element, in order. */
template <typename F>
void each(const tensor &t, F f)
{
    int64_t i = 0;
    for (int64_t a = 0; a < t.dims[0]; a++)
        for (int64_t b = 0; b < t.dims[1]; b++)
            for (int64_t c = 0; c < t.dims[2]; c++)
                for (int64_t d = 0; d < t.dims[3]; d++)
                    f(i++,
                      a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3]);
}

struct state {
    std::map<int64_t, values> got;
    std::map<int64_t, char *> at;
};

const values &fetch(state &s, const tensor &t)
{
    auto found = s.got.find(t.id);
    if (found != s.got.end())
        return found->second;
    values &v = s.got[t.id];
    v.resize((size_t)t.count());
    const char *from = s.at[t.id];
    each(t, [&](int64_t i, int64_t offset) {
        v[(size_t)i] = load(from + t.bytes() * offset, t.type);
    });
    return v;
}

/* The element of an operand that goes with element i of the result. A dimension of 1 is repeated:
 * all of them, or that of the keys. */
size_t broadcast(const tensor &of, const tensor &y, int64_t i)
{
    if (of.count() == y.count())
        return (size_t)i;
    return of.count() == 1 ? 0 : (size_t)(i / y.dims[3]);
}

__attribute__((optimize("O3"))) void product(values &y, const operation &o, const values &a,
                                             const values &b)
{
    const int64_t heads = o.y.dims[1], m = o.x.dims[2], k = o.x.dims[3], n = o.y.dims[3],
                  group = heads / o.b.dims[1];

    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < m; r++) {
            float *out = y.data() + (h * m + r) * n;
            const float *row = a.data() + (h * m + r) * k, *with = b.data() + (h / group) * k * n;
            for (int64_t j = 0; j < k; j++)
                if (row[j] != 0.0f) /* masked values are not looked at */
                    for (int64_t c = 0; c < n; c++)
                        out[c] += row[j] * with[j * n + c];
        }
}

float pointwise(const operation &o, float x, float b, float t, int64_t index)
{
    switch (o.mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0.0f ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)(index / (o.axis == 2 ? o.y.dims[3] : 1) % o.y.dims[o.axis]);
    default:
        return NAN;
    }
}

void carry_out(state &s, const operation &o)
{
    const values &x = fetch(s, o.x);
    values y((size_t)o.y.count(), 0.0f);

    if (o.kind == operation::PRODUCT) {
        product(y, o, x, fetch(s, o.b));
    } else if (o.kind == operation::POINTWISE) {
        const values *b = o.has_b ? &fetch(s, o.b) : nullptr,
                     *t = o.has_t ? &fetch(s, o.t) : nullptr;
        for (int64_t i = 0; i < o.y.count(); i++)
            y[(size_t)i] = pointwise(o, x[broadcast(o.x, o.y, i)],
                                     b ? (*b)[broadcast(o.b, o.y, i)] : 0.0f,
                                     t ? (*t)[broadcast(o.t, o.y, i)] : 0.0f, i);
    } else {
        const int64_t n = o.x.dims[3];
        for (int64_t i = 0; i < o.y.count(); i++)
            for (int64_t j = 0; j < n; j++) {
                const float v = x[(size_t)(i * n + j)];
                y[(size_t)i] = j == 0                              ? v
                               : o.mode == CUDNN_REDUCE_TENSOR_MAX ? fmaxf(y[(size_t)i], v)
                                                                   : y[(size_t)i] + v;
            }
    }
    for (float &v : y)
        v = rounded(v, o.y.type);
    if (!o.y.is_virtual)
        each(o.y, [&](int64_t i, int64_t offset) {
            char *const at = s.at[o.y.id] + o.y.bytes() * offset;
            store(at, o.y.type, y[(size_t)i]);
            check_device(at, (size_t)o.y.bytes(), MEMORY_WRITTEN);
        });
    s.got[o.y.id] = std::move(y);
}

/* Changes the first result of a call where the library is broken. */
bool spoils(const plan &p, int64_t call)
{
    const tensor &v = p.operations.back().b;
    const int64_t columns = v.strides[1] / v.dims[3];

    switch (fault_now) {
    case CUDASIM_CUDNN_STRIDES:
        return columns != v.dims[2];
    case CUDASIM_CUDNN_ONE_LENGTH:
        return columns == fault_argument;
    case CUDASIM_CUDNN_HISTORY:
        return call % 2 != 0;
    case CUDASIM_CUDNN_ENGINE:
        return p.engine == fault_argument && call % 2 != 0;
    default:
        return p.engine == 7 && call % 2 != 0;
    }
}

/* Whether the statistics have a place: a sum of which one part is a logarithm, in memory. */
bool has_statistics(const plan &p)
{
    for (const operation &log : p.operations)
        for (const operation &o : p.operations)
            if (log.kind == operation::POINTWISE && log.mode == CUDNN_POINTWISE_LOG &&
                o.kind == operation::POINTWISE && o.mode == CUDNN_POINTWISE_ADD &&
                !o.y.is_virtual && o.y.type == CUDNN_DATA_FLOAT && o.has_b && o.b.id == log.y.id)
                return true;
    return false;
}

cudaError_t run(const plan &p, state s, int64_t call)
{
    const tensor &v = p.operations.back().b, &y = p.operations.back().y;
    unsigned short first;

    if (!has_statistics(p))
        return cudaErrorIllegalAddress;
    if (fault_now == CUDASIM_CUDNN_TOP_LEFT) /* as if there were as many keys as queries */
        for (auto &scalar : s.got)
            if (scalar.second.size() == 1 && scalar.second[0] == (float)v.dims[2])
                scalar.second[0] = (float)y.dims[2];
    for (const operation &o : p.operations)
        carry_out(s, o);
    memcpy(&first, s.at[y.id], 2);
    if (fault_now == CUDASIM_CUDNN_NEIGHBOUR) { /* the column after the last key, with a weight of 0
                                                 */
        const char *at = s.at[v.id] + 2 * v.dims[2] * v.strides[2];
        const float beyond = is_device_range(at, 2) ? load(at, v.type) : 0.0f;
        store(s.at[y.id], y.type, load(s.at[y.id], y.type) + 0.0f * beyond);
    } else if (fault_now == CUDASIM_CUDNN_ADDRESS) {
        first ^= (unsigned short)((uintptr_t)s.at[v.id] >> 8);
        memcpy(s.at[y.id], &first, 2);
    } else if (p.engine == 1 || spoils(p, call)) {
        first ^= p.engine == 1 && !spoils(p, call) ? 2 : 1;
        memcpy(s.at[y.id], &first, 2);
    }
    return cudaSuccess;
}

/* ------------------------------------------------------------------ functions */

size_t get_version(void) { return version_there; }

cudnnStatus_t create(cudnnHandle_t *handle)
{
    *handle = new cudnnContext();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

int64_t alive;

cudnnStatus_t make(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    CUDASIM_LOCK;
    descriptor *d = new descriptor();
    d->type = type;
    *out = d;
    alive++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t unmake(cudnnBackendDescriptor_t which)
{
    CUDASIM_LOCK;
    delete (descriptor *)which;
    alive--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnBackendDescriptor_t on, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *from)
{
    descriptor *d = (descriptor *)on;
    const char *bytes = (const char *)from;
    if (!d || d->is_finished || count < 1 || !from)
        return CUDNN_STATUS_BAD_PARAM;
    d->attributes[name] = {type, count,
                           std::vector<char>(bytes, bytes + (size_t)count * size_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t which)
{
    descriptor *d = (descriptor *)which;
    std::vector<operation> operations;
    const descriptor *config, *engine;

    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        if (!d->attributes.count(CUDNN_ATTR_TENSOR_DIMENSIONS) ||
            !d->attributes.count(CUDNN_ATTR_TENSOR_STRIDES) ||
            d->attributes[CUDNN_ATTR_TENSOR_DIMENSIONS].count != 4 ||
            !d->attributes.count(CUDNN_ATTR_TENSOR_UNIQUE_ID))
            return CUDNN_STATUS_BAD_PARAM;
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!read_graph(&operations, d) || !d->attributes.count(CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
            return CUDNN_STATUS_BAD_PARAM;
        break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        if (!child(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH) ||
            !child(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->is_finished)
            return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        config = child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        engine = config ? child(config, CUDNN_ATTR_ENGINECFG_ENGINE) : nullptr;
        if (!engine || !config->is_finished || !engine->is_finished)
            return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
        if (fault_now == CUDASIM_CUDNN_NO_PLAN)
            return CUDNN_STATUS_NOT_SUPPORTED;
        put<int64_t>(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 256);
        break;
    default:
        break;
    }
    d->is_finished = true;
    return CUDNN_STATUS_SUCCESS;
}

/* Writes a configuration of the heuristic into descriptors that the caller made. The engine's and
 * the knob's parts are kept in attributes that no caller names. */
enum { SECRET_ENGINE = -1, SECRET_KNOB = -2 };

void offer(descriptor *config, int64_t engine, int64_t knob)
{
    put<int64_t>(config, SECRET_ENGINE, CUDNN_TYPE_INT64, engine);
    put<int64_t>(config, SECRET_KNOB, CUDNN_TYPE_INT64, knob);
    config->is_finished = true;
}

cudnnStatus_t get(cudnnBackendDescriptor_t const from, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *out)
{
    const descriptor *d = (const descriptor *)from;
    descriptor *const *made = (descriptor *const *)out;

    if (!d || !d->is_finished || wanted < 1)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        if (value<int>(d, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A && wanted > 1) {
            offer(made[0], 7, 0);
            offer(made[1], 3, 5);
            *count = 2;
        } else {
            offer(made[0], 1, 0);
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        put<int64_t>(made[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                     value<int64_t>(d, SECRET_ENGINE));
        put<int>(made[0], CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 value<int64_t>(d, SECRET_ENGINE) == 7 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                       : CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        made[0]->is_finished = true;
    } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
        *count = value<int64_t>(d, SECRET_KNOB) != 0;
        if (*count) {
            put<int>(made[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                     CUDNN_KNOB_TYPE_KERNEL_CFG);
            put<int64_t>(made[0], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
                         value<int64_t>(d, SECRET_KNOB));
            made[0]->is_finished = true;
        }
    } else {
        auto found = d->attributes.find(name);
        if (found == d->attributes.end() || found->second.type != type)
            return CUDNN_STATUS_NOT_SUPPORTED;
        *count = found->second.count;
        memcpy(out, found->second.bytes.data(),
               (size_t)(*count < wanted ? *count : wanted) * size_of(found->second.type));
    }
    return CUDNN_STATUS_SUCCESS;
}

bool is_readable(const tensor &t, const char *at)
{
    int64_t last = 0;
    for (int k = 0; k < 4; k++)
        last += (t.dims[k] - 1) * t.strides[k];
    return (uintptr_t)at % 16 == 0 && is_device_range(at, (size_t)((last + 1) * t.bytes()));
}

/* Scalars are read now; tensors are read when the stream runs the call. */
bool bind(state *s, const plan &p, const descriptor *pack)
{
    const attribute &ids = pack->attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    &at = pack->attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t i = 0; i < ids.count; i++)
        s->at[((const int64_t *)(const void *)ids.bytes.data())[i]] = ((char *const *)(const void *)
                                                                           at.bytes.data())[i];
    for (const operation &o : p.operations) {
        const tensor *const used[] = {&o.x, &o.y, o.has_b ? &o.b : nullptr,
                                      o.has_t ? &o.t : nullptr};
        for (const tensor *t : used) {
            if (!t || t->is_virtual)
                continue;
            if (!s->at.count(t->id) || (!t->is_by_value && !is_readable(*t, s->at[t->id])))
                return false;
            if (t->is_by_value) {
                int32_t bits;
                float v;
                memcpy(&bits, s->at[t->id], 4);
                memcpy(&v, &bits, 4);
                s->got[t->id] = values(1, t->type == CUDNN_DATA_INT32 ? (float)bits : v);
            }
        }
    }
    return true;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t which,
                      cudnnBackendDescriptor_t with)
{
    CUDASIM_LOCK;
    const descriptor *d = (const descriptor *)which, *pack = (const descriptor *)with;
    const descriptor *engine = child(child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                                     CUDNN_ATTR_ENGINECFG_ENGINE);
    auto p = std::make_shared<plan>();
    state s;

    p->engine = value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (!d->is_finished || !pack->is_finished ||
        !read_graph(&p->operations, child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)) ||
        !bind(&s, *p, pack) ||
        !is_device_range(value<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 256))
        return CUDNN_STATUS_BAD_PARAM;
    if (fault_now == CUDASIM_CUDNN_NO_RUN)
        return CUDNN_STATUS_EXECUTION_FAILED;
    const int64_t call = ++calls;
    return enqueue(handle->stream, [p, s, call] { return run(*p, s, call); }) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

} // namespace

extern "C" {

void cudasim_cudnn(size_t version)
{
    CUDASIM_LOCK;
    version_there = version;
}

void cudasim_break_cudnn(enum cudasim_cudnn_fault what, int64_t argument)
{
    CUDASIM_LOCK;
    fault_now = what;
    fault_argument = argument;
}

int64_t cudasim_cudnn_calls(void)
{
    CUDASIM_LOCK;
    return calls;
}

int64_t cudasim_cudnn_objects(void)
{
    CUDASIM_LOCK;
    return alive;
}

int sb_cudnn_load(struct sb_cudnn *api, char *why, size_t why_size)
{
    *api = {get_version, create, destroy, set_stream, make, unmake, finalize, set, get, execute};
    if (!version_there)
        snprintf(why, why_size, "no libcudnn on this machine");
    return version_there != 0;
}
}
