/*
 * Files of prompts, as generate and bench read them: lines of JSON. The input is such a file.
 *
 * What is checked: a file is refused with one clean line, or read without a word; each of its
 * prompts then has ids or a text, and an id of its own; and what its line wishes for is within the
 * ranges that lines of prompts have, so that no bad number gets as far as a pool.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/support/prompts.h"
#include "fuzz/support/fuzz.h"

enum { SAID = 8192 };

/* Reads the file, and what is said of it meanwhile on stderr, which takes its usual way again. */
static int read_prompts(struct ex_prompts *prompts, const char *path, char said[SAID])
{
    char to[256];
    const int usual = dup(STDERR_FILENO);
    int file, ok;
    ssize_t n;

    snprintf(to, sizeof to, "%s/said", fuzz_dir());
    file = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
    FUZZ_CHECK(usual >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    ok = ex_prompts_read(prompts, path, 0);
    fflush(stderr);
    dup2(usual, STDERR_FILENO);
    n = pread(file, said, SAID - 1, 0);
    FUZZ_CHECK(n >= 0);
    said[n] = '\0';
    close(file);
    close(usual);
    return ok;
}

static void check_said(const char *said, int ok)
{
    const size_t n = strlen(said);

    FUZZ_CHECK(ok == (n == 0));
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(((unsigned char)said[i] >= ' ' && said[i] != 127) || i + 1 == n);
    FUZZ_CHECK(n == 0 || said[n - 1] == '\n');
}

static int is_in(float value, float low, float high)
{
    return value >= low && value <= high;
}

static void check_sampling(const specbatch_sampling *s)
{
    FUZZ_CHECK(is_in(s->temperature, 0.0f, 1e9f) && is_in(s->repetition_penalty, 0.0f, 1e9f));
    FUZZ_CHECK(is_in(s->top_p, 0.0f, 1.0f) && is_in(s->typical_p, 0.0f, 1.0f));
    FUZZ_CHECK(is_in(s->min_p, 0.0f, 1.0f) && s->top_k >= 0);
    FUZZ_CHECK(is_in(s->presence_penalty, -1e9f, 1e9f));
    FUZZ_CHECK(is_in(s->frequency_penalty, -1e9f, 1e9f));
    FUZZ_CHECK(s->penalty_window >= 0 && s->penalty_window <= 3072 && s->n_bias <= 1024);
    for (size_t i = 0; i < s->n_bias; i++)
        FUZZ_CHECK(s->bias_ids[i] >= 0 && !isnan(s->bias[i]));
}

static void check_wish(const struct ex_prompt *prompt)
{
    const struct ex_wish usual = {.max_new = 16, .draft_len = 5},
                         wish = ex_wish_of(&prompt->own, &usual);
    struct ex_request wished;
    const specbatch_request *r = &wished.request;

    ex_wish_request(&wished, &wish);
    FUZZ_CHECK(r->max_new >= 1 && r->min_new >= 0 && r->draft_len >= -1 && r->draft_len <= 64);
    FUZZ_CHECK(r->draft_len != 0 && r->top_logprobs >= 0 && r->top_logprobs <= 32);
    FUZZ_CHECK(r->priority >= -1000 && r->priority <= 1000);
    FUZZ_CHECK(r->answers->n >= 1 && r->answers->n <= 1024 && r->answers->best_of <= 1024);
    FUZZ_CHECK(r->n_stop_ids <= 64);
    for (size_t i = 0; i < r->n_stop_ids; i++)
        FUZZ_CHECK(r->stop_ids[i] >= 0);
    FUZZ_CHECK(!r->stops || r->stops->n_strings <= 16);
    for (size_t i = 0; r->stops && i < r->stops->n_strings; i++)
        FUZZ_CHECK(strlen(r->stops->strings[i]) > 0);
    check_sampling(r->sampling);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ex_prompts prompts;
    char path[256], said[SAID];
    int ok;

    snprintf(path, sizeof path, "%s/prompts", fuzz_dir());
    fuzz_write("prompts", data, size);
    ok = read_prompts(&prompts, path, said);
    check_said(said, ok);
    FUZZ_CHECK(!ok || prompts.n > 0);
    for (size_t i = 0; ok && i < prompts.n; i++) {
        FUZZ_CHECK((prompts.at[i].ids != NULL) != (prompts.at[i].text != NULL));
        FUZZ_CHECK(prompts.at[i].id != NULL);
        check_wish(&prompts.at[i]);
    }
    ex_prompts_free(&prompts);
    fuzz_remove_files();
    return 0;
}
