/*
 * A pair of tiny models in GGUF files, with weights drawn at random in quantised types: a target of
 * the types whose blocks have 256 elements, and a draft of those of 32. Both have the shape of
 * Llama, and the vocabulary and the end-of-sequence id of the models in test/data/models.
 *
 *              token_embd  q     k     v     o     gate  up    down  output
 *     target   Q5_K        Q4_K  Q4_K  Q6_K  Q4_K  Q5_K  Q4_K  Q6_K  Q6_K
 *     draft    Q8_0        Q4_0  Q8_0  F16   Q4_0  Q4_0  Q8_0  Q8_0  Q8_0
 *
 * So there are maps of one type, and maps of two and three.
 */
#ifndef QUANTISED_MODEL_H
#define QUANTISED_MODEL_H

#include "support/model_files.h"

/* Writes both into a folder: "quantised.gguf" and "quantised.gguf.draft". */
void quantised_model_write(const struct test_dir *dir);

#endif
