/*
 * Prints what the CPU samples from rows of logits, for check_filters.sh. A row comes in three
 * lines:
 *
 *     seed temperature top_k top_p typical_p min_p repetition
 *     the number of tokens before, and their ids
 *     the number of logits, and the logits
 *
 * and goes out as one: the ids that are chosen at DRAWS positions, which are those after the tokens
 * and the following. Floats may be hexadecimal.
 */
#include "kernels/cpu/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"
#include "specbatch.h"

enum { MOST = 4096, DRAWS = 128 };

/* Reads a count and as many ids or floats. Returns the count, or -1. */
static int32_t read_list(int32_t *ids, float *floats)
{
    int32_t n;

    if (scanf("%d", &n) != 1 || n < 0 || n > MOST)
        return -1;
    for (int32_t i = 0; i < n; i++)
        if ((ids ? scanf("%d", &ids[i]) : scanf("%f", &floats[i])) != 1)
            return -1;
    return n;
}

/* Returns 0 when there is no row any more. */
static int read_row(struct sb_sampler *r, int32_t *tokens, float *logits, int32_t *n)
{
    unsigned long long seed;

    *r = (struct sb_sampler){.mask_at = -1, .greedy_from = INT32_MAX, .window = MOST};
    if (scanf("%llu %f %d %f %f %f %f", &seed, &r->temperature, &r->top_k, &r->top_p, &r->typical_p,
              &r->min_p, &r->repetition) != 7)
        return 0;
    r->seed = seed;
    r->n_tokens = r->n_listed = read_list(tokens, NULL);
    *n = read_list(NULL, logits);
    if (r->n_tokens < 0 || *n < 0) {
        fprintf(stderr, "a row that is not complete\n");
        exit(1);
    }
    return 1;
}

int main(void)
{
    static int32_t tokens[MOST];
    static float logits[MOST], row[MOST];
    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(SPECBATCH_SIMD_AUTO);
    const int32_t zero = 0;
    struct sb_sampler sampler;
    struct sb_fp_env env;
    int32_t n, id, pos;
    const struct sb_samplers all = {.rows = &sampler,
                                    .lists = tokens,
                                    .row_stride = 1,
                                    .tokens = &zero,
                                    .id_at = &zero,
                                    .pos = &pos,
                                    .out = &zero};

    sb_port_fp_enter(&env);
    while (read_row(&sampler, tokens, logits, &n)) {
        for (int i = 0; i < DRAWS; i++) {
            memcpy(row, logits, (size_t)n * sizeof *row);
            pos = sampler.n_tokens - 1 + i;
            kernels->select(&(struct sb_select){1, n, n, row, &zero, &id, NULL, NULL, &all, NULL},
                            0, 1);
            printf("%d ", id);
        }
        printf("\n");
    }
    sb_port_fp_leave(&env);
    return 0;
}
