/* Reading and writing verdicts on products; plan_file.h draws the file. */
#include "backend/cuda/plan_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "status.h"

enum {
    MOST = 512,       /* verdicts: two models have about 70 */
    LINE_BYTES = 160, /* of the longest line of a verdict */
    MACHINE_BYTES = 384
};

#define FIRST_LINE "specbatch plans 2\n"

struct sb_plan_file {
    const struct sb_gpu *gpu;
    char path[SB_FILE_PATH + 1];
    char machine[MACHINE_BYTES]; /* the second line */
    int is_new;                  /* there are verdicts that the file may lack */
    int n;
    struct sb_verdict verdicts[MOST];
};

int32_t sb_plan_file_open(struct sb_plan_file **out, const struct sb_gpu *gpu, const char *path,
                          size_t library)
{
    struct sb_plan_file *file = NULL;
    struct cudaDeviceProp device;
    int driver = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(gpu, cudaGetDeviceProperties(&device, gpu->index), "its properties", 0));
    SB_TRY(sb_cuda_status(gpu, cudaDriverGetVersion(&driver), "the driver's version", 0));
    SB_NEW(file, sb_alloc(&gpu->mem, 1, sizeof *file), "the plan file");
    file->gpu = gpu;
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->machine, sizeof file->machine,
             "%.200s, sm_%d%d, %d multiprocessors, driver %d, cublasLt %zu, specbatch %d.%d.%d\n",
             device.name, device.major, device.minor, device.multiProcessorCount, driver, library,
             SPECBATCH_VERSION_MAJOR, SPECBATCH_VERSION_MINOR, SPECBATCH_VERSION_PATCH);
    *out = file;
done:
    return rc;
}

void sb_plan_file_close(struct sb_plan_file *file)
{
    if (file)
        sb_free(&file->gpu->mem, file);
}

/* The place of the verdict on a type, shape and rows, or -1. */
static int find(const struct sb_plan_file *file, const struct sb_verdict *key)
{
    for (int i = 0; i < file->n; i++) {
        const struct sb_verdict *v = &file->verdicts[i];
        if (v->type == key->type && v->n_out == key->n_out && v->n_in == key->n_in &&
            v->gated == key->gated && v->rows == key->rows)
            return i;
    }
    return -1;
}

const struct sb_verdict *sb_plan_file_find(const struct sb_plan_file *file,
                                           const struct sb_verdict *key)
{
    const int at = find(file, key);

    return at < 0 ? NULL : &file->verdicts[at];
}

void sb_plan_file_note(struct sb_plan_file *file, const struct sb_verdict *verdict)
{
    int at = find(file, verdict);

    if ((at >= 0 && verdict->by == SB_BY_MMA) || (at < 0 && file->n == MOST))
        return;
    at = at < 0 ? file->n++ : at;
    file->verdicts[at] = *verdict;
    file->is_new = 1;
}

/* ------------------------------------------------------------ the text */

/* As the file names them, by enum sb_maker. */
static const char *const MAKERS[] = {"mma", "wgmma", "cublasLt"};

/* One line as a verdict. Numbers have so few digits that none is out of range. 0: it is none. */
static int parse(struct sb_verdict *v, const char *line)
{
    struct sb_algo_name *a = &v->algo;
    char type[5], who[9];
    int end = 0;

    memset(v, 0, sizeof *v);
    if (sscanf(line, "%4s %9" SCNd32 " %9" SCNd32 " %9" SCNd32 " %9" SCNd32 " %8s%n", type,
               &v->n_out, &v->n_in, &v->gated, &v->rows, who, &end) != 6)
        return 0;
    v->type = strcmp(type, "f16") == 0 ? SB_F16 : SB_BF16;
    v->by = strcmp(who, MAKERS[SB_BY_LIBRARY]) == 0 ? SB_BY_LIBRARY
            : strcmp(who, MAKERS[SB_BY_WGMMA]) == 0 ? SB_BY_WGMMA
                                                    : SB_BY_MMA;
    if (v->type != SB_F16 && strcmp(type, "bf16") != 0)
        return 0;
    if (v->by != SB_BY_LIBRARY)
        return strcmp(who, MAKERS[v->by]) == 0 && line[end] == '\n';
    line += end;
    end = 0;
    return sscanf(line,
                  " %8" SCNx32 " %8" SCNx32 " %8" SCNx32 " %8" SCNx32 " %8" SCNx32 " %8" SCNx32
                  "%n",
                  &a->id, &a->tile, &a->stages, &a->custom, &a->inner, &a->cluster, &end) == 6 &&
           line[end] == '\n';
}

/* Appends a verdict's line, and returns its length. */
static size_t format(char line[LINE_BYTES], const struct sb_verdict *v)
{
    const struct sb_algo_name *a = &v->algo;
    char algo[80] = "";

    if (v->by == SB_BY_LIBRARY)
        snprintf(algo, sizeof algo,
                 " %" PRIx32 " %" PRIx32 " %" PRIx32 " %" PRIx32 " %" PRIx32 " %" PRIx32, a->id,
                 a->tile, a->stages, a->custom, a->inner, a->cluster);
    return (size_t)snprintf(
        line, LINE_BYTES, "%s %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " %s%s\n",
        sb_dtype_name(v->type), v->n_out, v->n_in, v->gated, v->rows, MAKERS[v->by], algo);
}

enum contents { USED, MISSING, OF_ANOTHER_MACHINE, DAMAGED };

/* Adds the verdicts of a text that are not known yet, up to its first fault. */
static enum contents add_all(struct sb_plan_file *file, const char *text)
{
    const size_t first = sizeof FIRST_LINE - 1, second = strlen(file->machine);
    struct sb_verdict v;

    if (strncmp(text, FIRST_LINE, first) != 0)
        return DAMAGED;
    text += first;
    if (strncmp(text, file->machine, second) != 0)
        return OF_ANOTHER_MACHINE;
    for (text += second; *text; text = strchr(text, '\n') + 1) {
        if (!parse(&v, text))
            return DAMAGED;
        if (find(file, &v) < 0 && file->n < MOST)
            file->verdicts[file->n++] = v;
    }
    return USED;
}

static enum contents load(struct sb_plan_file *file)
{
    enum contents contents = MISSING;
    char *text = NULL;
    const int32_t rc = sb_file_load(&text, NULL, &file->gpu->mem, file->path,
                                    (size_t)MOST * LINE_BYTES);

    if (rc != SPECBATCH_E_NOT_FOUND)
        contents = rc == SPECBATCH_OK ? add_all(file, text) : DAMAGED;
    sb_free(&file->gpu->mem, text);
    return contents;
}

void sb_plan_file_read(struct sb_plan_file *file)
{
    const enum contents contents = load(file);

    file->is_new |= contents == OF_ANOTHER_MACHINE || contents == DAMAGED;
    if (contents == OF_ANOTHER_MACHINE)
        sb_log(&file->gpu->log, SPECBATCH_LOG_INFO,
               "CUDA: the plan file is of another machine and is made anew: %s", file->path);
    if (contents == DAMAGED)
        sb_log(&file->gpu->log, SPECBATCH_LOG_ERROR,
               "CUDA: the plan file cannot be used, so products are timed anew: %s", file->path);
}

void sb_plan_file_write(struct sb_plan_file *file)
{
    char *text;
    size_t size = sizeof FIRST_LINE - 1;
    int32_t rc = SPECBATCH_E_NOMEM;

    if (!file->is_new)
        return;
    (void)load(file);
    text = sb_alloc(&file->gpu->mem, MOST + 8, LINE_BYTES);
    if (text) {
        memcpy(text, FIRST_LINE, size);
        memcpy(text + size, file->machine, strlen(file->machine));
        size += strlen(file->machine);
        for (int i = 0; i < file->n; i++)
            size += format(text + size, &file->verdicts[i]);
        rc = sb_file_save(file->path, text, size);
    }
    file->is_new = 0;
    if (rc != SPECBATCH_OK)
        sb_log(&file->gpu->log, SPECBATCH_LOG_ERROR,
               "CUDA: the plan file cannot be written, so the next process times products anew: %s",
               file->path);
    sb_free(&file->gpu->mem, text);
}
