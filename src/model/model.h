/*
 * A loaded checkpoint: its configuration, its weights as the backend has packed them, its
 * tokenizer. A model does not change after sb_model_open, and lives until its last reference is
 * dropped. So any number of pools on any threads may read it.
 *
 *   model
 *    |- config           numbers (config.h)
 *    |- embed            [vocab, hidden]      row = one token's vector
 *    |- layers[n]        norms, qkv, o, mlp (and their biases); or router and experts for mlp
 *    |- final_norm       [hidden]
 *    |- head             [vocab, hidden]      the same memory as embed if the two are tied
 *    `- tokenizer        or NULL
 */
#ifndef SB_MODEL_H
#define SB_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "alloc.h"
#include "backend/backend.h"
#include "digest.h"
#include "log.h"
#include "model/config.h"
#include "model/tensors.h"
#include "text/chat.h"
#include "text/tokenizer.h"

/* One layer. The shapes of weights are [n_out, n_in]. Every float pointer is dev memory, and NULL
 * if the architecture has no such vector. */
struct sb_layer {
    float *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm; /* [hidden] */
    float *q_norm, *k_norm;                                       /* [head_dim] */
    struct sb_weight qkv; /* [(heads + 2 kv_heads) * head_dim, hidden] */
    float *qkv_bias;
    struct sb_weight o; /* [hidden, heads * head_dim] */
    float *o_bias;
    float *sinks; /* [heads] */
    struct sb_mlp mlp;
    float *gate_up_bias, *down_bias; /* of a mixture: those of each expert, one behind the other */
    /* Of a mixture, in the place of mlp: the map whose output says which experts are chosen,
     * [experts, hidden], what is added for the choice, [experts], and the experts, the shared one
     * last. NULL: there are none. */
    struct sb_weight router;
    float *router_bias, *choice_bias;
    struct sb_mlp *experts;
};

struct specbatch_model {
    atomic_int references;
    struct sb_mem mem;
    struct sb_log log;
    const struct sb_backend *backend;
    struct sb_device *device;
    int32_t device_index; /* which one of its kind */
    struct sb_config config;
    enum sb_dtype dtype; /* of the layers' matrices in memory, or of most of their elements */
    /* Which types the matrices in memory have, and what they were quantised to: "bf16",
     * "q8_0+q4_0; weights q4". */
    char types[64];
    uint64_t bytes;  /* of all weights in memory */
    int64_t process; /* On a GPU, the only process that may use the model (sb_port_process). 0: any
                        may, since a fork copies ordinary memory. */
    struct sb_weight embed, head;
    struct sb_layer *layers;
    float *final_norm;
    struct sb_tokenizer *tokenizer;
    int32_t chat; /* the format of its chat template, as sb_chat_detect gives it */
    int32_t span; /* prompt tokens of a span (backend/backend.h), or 0: passes have no spans */
    char fingerprint[320];
    char digest[SB_DIGEST_TEXT]; /* of the configuration and of every weight, as the files have them
                                  */
};

/* Fills in the defaults and checks the ranges of the caller's options. `given` may be NULL.
 * E_INVALID, E_OPTIONS. */
int32_t sb_model_options_resolve(specbatch_model_options *full,
                                 const specbatch_model_options *given);
/* The options have been resolved. */
int32_t sb_model_open(struct specbatch_model **out, const char *path,
                      const specbatch_model_options *options);
/* 1 when a model could be opened on this kind of device (SPECBATCH_DEVICE_*). */
int32_t sb_model_device_exists(int32_t device);
/* Adds a reference. NULL is fine. */
void sb_model_retain(struct specbatch_model *model);
/* Drops a reference; the last one frees the model. NULL is fine. In a forked child, memory on a GPU
 * is left to the parent, which owns it. */
void sb_model_release(struct specbatch_model *model);

/* 0 for a model on a GPU in a forked child, where the GPU may not be used. */
int sb_model_is_usable(const struct specbatch_model *model);
/* The same question, answered by a status: E_INVALID. */
int32_t sb_model_check_process(const struct specbatch_model *model);

/* Whether this id below the vocabulary's size has a token: an embedding may be padding only.
 * Without a tokenizer all ids have one. */
int sb_model_has_token(const struct specbatch_model *model, int32_t id);

/* Takes as many bytes on the host, whence the device copies, as on the model's device. What it
 * could take before an error is in *dev and *host, and is the caller's to give back. */
int32_t sb_model_take_memory(struct specbatch_model *model, const struct sb_mem *mem, size_t bytes,
                             char **dev, char **host);
/* Gives both back; NULL: there is none. Each is NULL before a hook is called to free it: the hook
 * may not return, and the caller is cleaned up later. */
void sb_model_give_memory(struct specbatch_model *model, const struct sb_mem *mem, char **dev,
                          char **host);

/* Checks that `draft` may propose for `target`. Both must be on the same kind of device
 * (E_INVALID). If both have a tokenizer, their base vocabularies must be the same, else their
 * vocabularies must be of the same size; E_VOCAB, with a message that says what differs. */
int32_t sb_model_check_draft(const struct specbatch_model *target,
                             const struct specbatch_model *draft);
/* A digest of how the model's tokenizer spells its own ids below n_ids, or "" if it has none. */
void sb_model_spelling_digest(const struct specbatch_model *model, int32_t n_ids,
                              char text[SB_DIGEST_TEXT]);

/* weights.c: loads embed, layers, final_norm and head of a model whose config and device are set,
 * from these tensors. `path` is where they are, for messages. Of the options it heeds the progress
 * function. After a failure sb_model_weights_free frees what had been loaded. E_IO, E_FORMAT,
 * E_UNSUPPORTED, E_CANCELLED, E_NOMEM, E_DEVICE. */
int32_t sb_model_weights_load(struct specbatch_model *model, const struct sb_tensors *tensors,
                              const char *path, const specbatch_model_options *options);
void sb_model_weights_free(struct specbatch_model *model);

#endif
