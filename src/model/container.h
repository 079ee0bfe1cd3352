/*
 * The two containers of a checkpoint: a directory as on Hugging Face, and a GGUF file. Whoever
 * opens a checkpoint asks here for what it is made of and need not know which of them it has:
 * models that are loaded (model.c) and files that are converted (convert.c).
 */
#ifndef SB_CONTAINER_H
#define SB_CONTAINER_H

#include "gguf.h"
#include "log.h"
#include "model/config.h"
#include "model/tensors.h"

struct sb_tokenizer;

struct sb_container {
    const char *path;     /* borrowed */
    struct sb_gguf *gguf; /* NULL: the path is that of a directory */
};

/* Opens what is at the path. E_IO (nothing is there), or as sb_gguf_open. */
int32_t sb_container_open(struct sb_container *container, const struct sb_mem *mem,
                          const char *path);
/* An empty container is fine. */
void sb_container_close(struct sb_container *container);

/* Its configuration, tensors and tokenizer (NULL where it has none), as sb_config_load,
 * sb_tensors_open and sb_tokenizer_load give them, and their twins for GGUF files. */
int32_t sb_container_config(struct sb_config *config, const struct sb_container *container,
                            const struct sb_mem *mem, const struct sb_log *log);
int32_t sb_container_tensors(struct sb_tensors **tensors, const struct sb_container *container,
                             const struct sb_mem *mem, const struct sb_config *config);
int32_t sb_container_tokenizer(struct sb_tokenizer **tokenizer,
                               const struct sb_container *container, const struct sb_mem *mem);

#endif
