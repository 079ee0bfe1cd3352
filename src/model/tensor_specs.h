/*
 * Which tensors a layer has: what a checkpoint calls them and their shapes. The loader and the
 * converter, and what makes checkpoints for tests, go by this list; the architecture says what is
 * in it, and the configuration how large.
 */
#ifndef SB_TENSOR_SPECS_H
#define SB_TENSOR_SPECS_H

#include <stdint.h>

#include "model/config.h"

/* What is stacked in memory follows each other: q, k and v, and gate and up. The last three are
 * those of the MLP, or of each expert. */
enum sb_layer_tensor {
    SB_TENSOR_ATTN_NORM,
    SB_TENSOR_POST_ATTN_NORM,
    SB_TENSOR_FFN_NORM,
    SB_TENSOR_POST_FFN_NORM,
    SB_TENSOR_Q_NORM,
    SB_TENSOR_K_NORM,
    SB_TENSOR_Q, /* or q, k and v in one */
    SB_TENSOR_K,
    SB_TENSOR_V,
    SB_TENSOR_O,
    SB_TENSOR_SINKS,
    SB_TENSOR_ROUTER,
    SB_TENSOR_CHOICE_BIAS,
    SB_TENSOR_GATE, /* or gate and up in one */
    SB_TENSOR_UP,
    SB_TENSOR_DOWN,
    SB_LAYER_TENSORS
};

struct sb_tensor_spec {
    const char *name;   /* of a matrix without ".weight"; NULL: there is no such tensor */
    int32_t rows, n_in; /* n_in 0: it is a vector of `rows` */
    int has_bias; /* a matrix has a vector of `rows` beside it, of the same name and ".bias" */
};

/* The tensors of a layer. Their names are without "model.layers.N.", and those of the MLP, or of
 * each expert, without what sb_mlp_prefix writes. */
void sb_layer_tensor_specs(struct sb_tensor_spec out[SB_LAYER_TENSORS],
                           const struct sb_config *config, int32_t layer);
/* Writes what the names of the tensors of an MLP begin with: of a layer's, or of an expert, the
 * shared one being behind all others. */
enum { SB_PREFIX_BYTES = 80 };
void sb_mlp_prefix(char prefix[SB_PREFIX_BYTES], const struct sb_config *config, int32_t layer,
                   int32_t expert);

/* A tensor by its whole name, of [rows, n_in], or of [rows] when n_in is 0. expert: the index of
 * the expert that it is of, or -1; that of the shared one is -1, too. Returns a status. */
typedef int32_t sb_tensor_visitor(void *ctx, const char *name, int32_t rows, int32_t n_in,
                                  int32_t expert);

/* Calls `visit` for each tensor of a layer, biases behind matrices, and those of the same kind of
 * all experts one after the other, until one call fails, whose status it returns. */
int32_t sb_layer_tensors_visit(const struct sb_config *config, int32_t layer,
                               sb_tensor_visitor *visit, void *ctx);

#endif
