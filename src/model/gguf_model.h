/*
 * A model in a GGUF file: which of its metadata are the numbers of a configuration, and which of
 * its tensors are those that the loader asks for. What such files hold is defined by llama.cpp's
 * converter of transformers' checkpoints, which renames what they have and reorders some of it.
 * Here that is undone, so that a model is the same in both containers, bit for bit; and done again
 * where a checkpoint is converted (convert.h).
 */
#ifndef SB_GGUF_MODEL_H
#define SB_GGUF_MODEL_H

#include "gguf.h"
#include "gguf_write.h"
#include "model/config.h"
#include "model/tensors.h"

/* gguf_config.c. The configuration that the metadata describe. E_FORMAT (the message names the file
 * and the key), E_UNSUPPORTED, E_IO, E_NOMEM. */
int32_t sb_gguf_config(struct sb_config *config, const struct sb_log *log,
                       const struct sb_gguf *gguf);

/* gguf_special.c. Reads the ids that begin and end texts into a configuration whose vocab is known.
 * E_FORMAT. */
int32_t sb_gguf_special(struct sb_config *config, const struct sb_gguf *gguf);

/* What expert_gating_func says of experts that are chosen by sigmoid (llama.cpp's
 * LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID). */
enum { SB_GGUF_SIGMOID = 2 };

/* By the root of what llama.cpp divides the scores of a model whose architecture has
 * default_query_scalar: as gemma_pytorch has it for each size. */
double sb_gguf_query_scalar(const struct sb_config *config);

/* The tensors of what frequencies are divided by: of Llama 3, and of longrope up to its original
 * context. Beyond that it has others, which nobody reads here. */
#define SB_GGUF_DIVISORS "rope_freqs.weight"
#define SB_GGUF_SHORT_DIVISORS "rope_factors_short.weight"
#define SB_GGUF_LONG_DIVISORS "rope_factors_long.weight"
/* By what Llama 3 or longrope divides the frequency of dimension pair i. */
double sb_gguf_divisor(const struct sb_rope_config *rope, int32_t i);

/* gguf_keys.c. Puts a configuration into the metadata of a file. */
void sb_gguf_put_config(struct sb_gguf_out *out, const struct sb_config *config);
/* Whether the configuration `got`, which was read from a file, is the one that was put there.
 * E_UNSUPPORTED, with a message that says what differs: a file has no key for all that a
 * config.json can say. Where only end-of-sequence ids are missing, this warns. */
int32_t sb_gguf_check_config(const struct sb_config *put, const struct sb_config *got,
                             const struct sb_log *log, const char *place);

/* gguf_copy.c. Puts what the types of most tensors of a file are called (enum llama_ftype). */
void sb_gguf_put_file_type(struct sb_gguf_out *out, uint32_t file_type);
/* Puts the metadata of a file there, less what speaks of that file itself and the keys that
 * begin with `without` (NULL: none). file_type takes the place of the file's own; -1: that stays.
 * E_NOMEM. */
int32_t sb_gguf_copy_keys(struct sb_gguf_out *out, const struct sb_mem *mem,
                          const struct sb_gguf *gguf, int32_t file_type, const char *without);

/* gguf_tensors.c. The set of its tensors, which borrows the names and the files from `gguf`.
 * E_FORMAT, E_NOMEM. */
int32_t sb_gguf_tensors(struct sb_tensors **out, const struct sb_mem *mem,
                        const struct sb_gguf *gguf, const struct sb_config *config);
/* Writes how such files spell the name of a tensor, which is that of transformers for a model of
 * this architecture. */
void sb_gguf_spell(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch,
                   const char *name);
/* The rows of a head if the file has those of this tensor in the other order (tensors.h), else 0.
 */
int32_t sb_gguf_interleave(const struct sb_config *config, const char *spelled);

#endif
