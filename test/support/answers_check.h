/*
 * Several answers to one prompt, compared with requests of their own: answer i is what a pool of
 * one row without a draft gives to the same request with the seed `seed` + i.
 */
#ifndef SB_TEST_ANSWERS_CHECK_H
#define SB_TEST_ANSWERS_CHECK_H

#include "specbatch.h"

enum { ANSWERS_MAX = 8, ANSWERS_NEW = 24 };

struct answers_plain {
    size_t n[ANSWERS_MAX]; /* tokens */
    int32_t tokens[ANSWERS_MAX][ANSWERS_NEW];
    float logprobs[ANSWERS_MAX][ANSWERS_NEW];
};

/* A request for `prompt`, sampled by *sampling, which gets its values, with log-probabilities. */
specbatch_request answers_request(const int32_t *prompt, size_t n_prompt,
                                  specbatch_sampling *sampling);
/* Asks for each of the first n answers alone. The request has a sampling. Returns 0, or -1 with the
 * library's last error set. */
int answers_ask(struct answers_plain *plain, specbatch_model *target,
                const specbatch_request *request, int32_t n);
/* Compares a result with what was asked, as far as it goes. Returns 0 when they are equal; else 1,
 * and `why` says what is not. */
int answers_result_differs(const struct answers_plain *plain, const specbatch_result *result,
                           char *why, size_t size);
/* Submits the request with n answers, runs the pool to its end, and compares everything that it
 * hands out. Returns as the last. invariants: 1, pool_check is called after every step. */
int answers_differ(const struct answers_plain *plain, specbatch_pool *pool,
                   const specbatch_request *request, int32_t n, int invariants, char *why,
                   size_t size);

#endif
