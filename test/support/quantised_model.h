/*
 * A pair of tiny models in GGUF files, with weights drawn at random in quantised types: a target of
 * the types whose blocks have 256 elements, and a draft of those of 32. Both have the shape of
 * Llama, and the vocabulary and the end-of-sequence id of the models in test/data/models.
 *
 *              token_embd  q     k     v     o     gate  up    down  output
 *     target   Q5_K        Q4_K  Q4_K  Q6_K  Q4_K  Q5_K  Q4_K  Q6_K  Q6_K
 *     draft    Q8_0        Q4_0  Q8_0  F16   Q4_0  Q4_0  Q8_0  Q8_0  Q8_0
 *
 * So there are maps of one type, and maps of two and three. Another pair has a mixture of experts
 * in the place of the MLP, with matrices that are not quantised too:
 *
 *                         token_embd  q     k     v     o     gate  up    down  output  router
 *     target, 2 of 6      BF16        BF16  Q8_0  BF16  BF16  BF16  BF16  MX    BF16    F32
 *     draft, 1 of 4       BF16        Q4_0  Q4_0  F16   Q4_0  Q8_0  MX    F32   Q8_0    F32
 *
 * MX is MXFP4.
 */
#ifndef QUANTISED_MODEL_H
#define QUANTISED_MODEL_H

#include "support/model_files.h"

/* Writes all into a folder: "quantised.gguf", "mixture.gguf", and each with ".draft" behind. */
void quantised_model_write(const struct test_dir *dir);

#endif
