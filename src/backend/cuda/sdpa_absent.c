/* Stands in for sdpa_cudnn.c in a build without cuDNN's headers. There is no library then, so the
 * functions that need an opened one are never called. */
#include <stdio.h>

#include "backend/cuda/sdpa.h"
#include "specbatch.h"

int32_t sb_sdpa_open(struct sb_sdpa **out, const struct sb_mem *mem, char *why, size_t why_size)
{
    (void)mem;
    *out = NULL;
    snprintf(why, why_size, "the module was built without it");
    return SPECBATCH_OK;
}

void sb_sdpa_close(struct sb_sdpa *sdpa)
{
    (void)sdpa;
}

size_t sb_sdpa_version(const struct sb_sdpa *sdpa)
{
    (void)sdpa;
    return 0;
}

int32_t sb_sdpa_engines(struct sb_sdpa *sdpa, const struct sb_sdpa_shape *shape,
                        struct sb_sdpa_engine *engines, int32_t most)
{
    (void)sdpa, (void)shape, (void)engines, (void)most;
    return 0;
}

int32_t sb_sdpa_plan_create(struct sb_sdpa_plan **out, struct sb_sdpa *sdpa)
{
    (void)sdpa;
    *out = NULL;
    return SPECBATCH_OK;
}

int32_t sb_sdpa_plan_make(int *made, struct sb_sdpa_plan *plan, struct sb_sdpa *sdpa,
                          const struct sb_sdpa_shape *shape, const struct sb_sdpa_engine *engine)
{
    (void)plan, (void)sdpa, (void)shape, (void)engine;
    *made = 0;
    return SPECBATCH_OK;
}

void sb_sdpa_plan_unmake(struct sb_sdpa_plan *plan)
{
    (void)plan;
}

void sb_sdpa_plan_free(struct sb_sdpa *sdpa, struct sb_sdpa_plan *plan)
{
    (void)sdpa, (void)plan;
}

size_t sb_sdpa_workspace(const struct sb_sdpa_plan *plan)
{
    (void)plan;
    return 0;
}

int sb_sdpa_run(struct sb_sdpa *sdpa, const struct sb_sdpa_plan *plan,
                const struct sb_sdpa_call *call)
{
    (void)sdpa, (void)plan, (void)call;
    return 0;
}
