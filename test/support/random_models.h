/*
 * Pairs of tiny models in GGUF files, with weights drawn at random, and the vocabulary and the
 * end-of-sequence id of the models in test/data/models. One pair is of Llama's shape in quantised
 * types: a target of those whose blocks have 256 elements, and a draft of those of 32.
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
 * MX is MXFP4. The last pair is of Gemma 2's shape, with soft caps and a window in every second
 * layer, which texts leave. The target is all F16, and the draft BF16.
 */
#ifndef SB_TEST_RANDOM_MODELS_H
#define SB_TEST_RANDOM_MODELS_H

#include "support/model_files.h"

/* Writes all into a folder: "quantised.gguf", "mixture.gguf", "capped.gguf", and each with ".draft"
 * behind. */
void random_models_write(const struct test_dir *dir);

#endif
