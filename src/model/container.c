/* Which of the two containers a checkpoint is in; container.h explains it. */
#include "model/container.h"

#include "model/gguf_model.h"
#include "model/shards.h"
#include "model/stacked.h"
#include "status.h"
#include "text/tokenizer.h"

int32_t sb_container_open(struct sb_container *container, const struct sb_mem *mem,
                          const char *path)
{
    int32_t rc;

    container->path = path;
    container->gguf = NULL;
    rc = sb_file_is_directory(path) ? SPECBATCH_OK : sb_gguf_open(&container->gguf, mem, path);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = sb_fail(SPECBATCH_E_IO, "neither a directory nor a GGUF file is there");
    return rc;
}

void sb_container_close(struct sb_container *container)
{
    sb_gguf_close(container->gguf);
    container->gguf = NULL;
}

int32_t sb_container_config(struct sb_config *config, const struct sb_container *container,
                            const struct sb_mem *mem, const struct sb_log *log)
{
    if (container->gguf)
        return sb_gguf_config(config, log, container->gguf);
    return sb_config_load(config, mem, log, container->path);
}

int32_t sb_container_tensors(struct sb_tensors **tensors, const struct sb_container *container,
                             const struct sb_mem *mem, const struct sb_config *config)
{
    int32_t rc;

    if (container->gguf)
        return sb_gguf_tensors(tensors, mem, container->gguf, config);
    rc = sb_tensors_open(tensors, mem, container->path);
    if (rc != SPECBATCH_OK)
        return rc;
    sb_tensors_set_arch(*tensors, config->arch);
    return sb_tensors_unstack(*tensors, config);
}

int32_t sb_container_tokenizer(struct sb_tokenizer **tokenizer,
                               const struct sb_container *container, const struct sb_mem *mem)
{
    if (container->gguf)
        return sb_tokenizer_load_gguf(tokenizer, mem, container->path, container->gguf);
    return sb_tokenizer_load(tokenizer, mem, container->path);
}
