/*
 * A mixture of experts as launches (kernels/cuda/launch.h has its pairs):
 *
 *   route       the experts of each row, and a place for each pair
 *   products    gate and up of the pairs, with rows gathered; they gate where they can
 *   gate        where they cannot: quantised weights, gates but silu, the f32 class
 *   products    down
 *   combine     the weighted sums
 *
 * The products of all experts are one launch, as long as their weights are alike and fit the
 * arguments of a kernel. Otherwise they are several: for each 256 experts, and for each part of
 * their maps and kind of it, as the rows of a map may be of several types (struct sb_weight) and a
 * file may even have other types for other experts. Launches for experts without rows do nothing,
 * which costs little, and only the device knows.
 */
#include "backend/cuda/mix_run.h"

#include <string.h>

#include "../kernels/cuda/launch.h"

/* Part of a map: the rows of one type, and what is in y before their columns. */
struct part {
    const struct sb_weight *weight; /* NULL: the map has no such part */
    int64_t at;
};

static const struct sb_weight *map_of(const struct sb_mlp *expert, int is_down)
{
    return is_down ? &expert->down : &expert->gate_up;
}

static struct part part_of(const struct sb_weight *map, int index)
{
    struct part part = {map, 0};

    for (; part.weight && index > 0; index--) {
        part.at += part.weight->n_out;
        part.weight = part.weight->next;
    }
    return part;
}

static int is_alike(const struct part *a, const struct part *b)
{
    return b->weight && a->at == b->at && a->weight->n_out == b->weight->n_out &&
           a->weight->dtype == b->weight->dtype && a->weight->gated == b->weight->gated;
}

static cudaError_t launch(enum sb_dtype type, const struct sb_expert_products *products,
                          const struct sb_cuda_experts *experts, const struct sb_cuda_pairs *pairs,
                          cudaStream_t stream)
{
    const int is_quantised = sb_dtype_is_quantised(products->dtype);

    if (type == SB_F32)
        return is_quantised ? sb_cuda_experts_quant_reference(products, experts, pairs, stream)
                            : sb_cuda_experts_reference(products, experts, pairs, stream);
    return is_quantised ? sb_cuda_experts_quant(products, type, experts, pairs, stream)
                        : sb_cuda_experts_mma(products, experts, pairs, stream);
}

/* One operation of products: gate and up, or down, of all experts. */
struct step {
    enum sb_dtype type;
    const struct sb_mixture *mixture;
    const struct sb_cuda_pairs *pairs;
    struct sb_expert_products products; /* with what all parts have in common */
    int is_down;
    cudaStream_t stream;
};

/* Products by the index-th part of the maps of experts [first, end). Those whose parts are alike
 * have a launch. *found: whether some map has such a part. */
static cudaError_t multiply_part(const struct step *s, int32_t first, int32_t end, int index,
                                 int *found)
{
    char is_done[SB_EXPERTS_OF_LAUNCH] = {0};
    cudaError_t error = cudaSuccess;

    *found = 0;
    for (int32_t e = first; e < end && error == cudaSuccess; e++) {
        const struct part part = part_of(map_of(&s->mixture->experts[e], s->is_down), index);
        if (!part.weight || is_done[e - first])
            continue;
        struct sb_expert_products products = s->products;
        struct sb_cuda_experts experts = {.first = first};
        *found = 1;
        for (int32_t other = e; other < end; other++) {
            const struct part same = part_of(map_of(&s->mixture->experts[other], s->is_down),
                                             index);
            if (!is_done[other - first] && is_alike(&part, &same)) {
                experts.weights[other - first] = same.weight->data;
                is_done[other - first] = 1;
            }
        }
        products.y += part.at;
        products.bias = products.bias ? products.bias + part.at : NULL;
        products.dtype = part.weight->dtype;
        products.n_out = part.weight->n_out;
        products.n_in = part.weight->n_in;
        products.gated = part.weight->gated;
        error = launch(s->type, &products, &experts, s->pairs, s->stream);
    }
    return error;
}

static cudaError_t multiply(const struct step *s)
{
    const int32_t n = s->mixture->n_experts + s->mixture->has_shared;
    cudaError_t error = cudaSuccess;

    for (int32_t first = 0; first < n; first += SB_EXPERTS_OF_LAUNCH) {
        const int32_t end = n - first < SB_EXPERTS_OF_LAUNCH ? n : first + SB_EXPERTS_OF_LAUNCH;
        for (int index = 0, found = 1; found && error == cudaSuccess; index++)
            error = multiply_part(s, first, end, index, &found);
    }
    return error;
}

/* Whether some weight of the experts is quantised, and whether products by all of them gate. */
static void look_at(enum sb_dtype type, const struct sb_mixture *mixture, int *has_quantised,
                    int *all_gate)
{
    *has_quantised = 0;
    *all_gate = type != SB_F32;
    for (int32_t e = 0; e < mixture->n_experts + mixture->has_shared; e++) {
        const struct sb_mlp *expert = &mixture->experts[e];
        for (int is_down = 0; is_down < 2; is_down++)
            for (const struct sb_weight *w = map_of(expert, is_down); w; w = w->next)
                *has_quantised |= sb_dtype_is_quantised(w->dtype);
        *all_gate &= expert->gate_up.gated > 0 && !sb_dtype_is_quantised(expert->gate_up.dtype);
    }
}

cudaError_t sb_mix_run(enum sb_dtype type, const struct sb_mixture *mixture, void *memory,
                       cudaStream_t stream)
{
    int has_quantised, all_gate;
    cudaError_t error;

    if (mixture->m == 0)
        return cudaSuccess;
    look_at(type, mixture, &has_quantised, &all_gate);
    const struct sb_cuda_pairs pairs = sb_cuda_pairs_of(mixture, has_quantised, memory);
    const struct step gate_up = {.type = type,
                                 .mixture = mixture,
                                 .pairs = &pairs,
                                 .products = {.y = mixture->gate_up,
                                              .act = all_gate ? mixture->act : NULL,
                                              .bias = mixture->gate_up_bias,
                                              .y_ld = 2 * mixture->inter,
                                              .x = mixture->h,
                                              .gathers = 1},
                                 .stream = stream};
    const struct step down = {.type = type,
                              .mixture = mixture,
                              .pairs = &pairs,
                              .products = {.y = mixture->out,
                                           .bias = mixture->down_bias,
                                           .y_ld = mixture->hidden,
                                           .x = mixture->act},
                              .is_down = 1,
                              .stream = stream};
    error = sb_cuda_route(mixture, &pairs, stream);
    if (error == cudaSuccess)
        error = multiply(&gate_up);
    if (error == cudaSuccess && !all_gate)
        error = sb_cuda_gate(mixture->act, type, mixture->gate_up, mixture->gate, pairs.n,
                             mixture->inter, stream);
    if (error == cudaSuccess)
        error = multiply(&down);
    return error == cudaSuccess ? sb_cuda_combine(mixture, &pairs, stream) : error;
}
