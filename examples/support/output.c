/* JSON is written by yajl_gen, so that quoting is right whatever text a tokenizer produces. */
#include "output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>

#include "id.h"
#include "support.h"

static void put_string(yajl_gen gen, const char *text)
{
    yajl_gen_string(gen, (const unsigned char *)text, strlen(text));
}

static void put_number(yajl_gen gen, const char *format, double value)
{
    char digits[40];

    if (isfinite(value))
        yajl_gen_number(gen, digits, (size_t)snprintf(digits, sizeof digits, format, value));
    else
        yajl_gen_null(gen); /* JSON has no other */
}

static void put_count(yajl_gen gen, const char *name, uint64_t value)
{
    put_string(gen, name);
    yajl_gen_integer(gen, (long long)value);
}

static void put_ratio(yajl_gen gen, const char *name, double value)
{
    put_string(gen, name);
    put_number(gen, "%.6g", value);
}

static void put_named(yajl_gen gen, const char *name, const char *value)
{
    put_string(gen, name);
    if (value)
        put_string(gen, value);
    else
        yajl_gen_null(gen);
}

static void put_floats(yajl_gen gen, const char *name, const float *values, size_t n)
{
    put_string(gen, name);
    yajl_gen_array_open(gen);
    for (size_t i = 0; i < n; i++)
        put_number(gen, "%.9g", (double)values[i]);
    yajl_gen_array_close(gen);
}

/* For each of n tokens its alternatives, as pairs of id and log-probability. */
static void put_alternatives(yajl_gen gen, const char *name, const int32_t *ids,
                             const float *logprobs, size_t n, size_t n_top)
{
    put_string(gen, name);
    yajl_gen_array_open(gen);
    for (size_t i = 0; i < n * n_top; i++) {
        if (i % n_top == 0)
            yajl_gen_array_open(gen);
        if (ids[i] >= 0) {
            yajl_gen_array_open(gen);
            yajl_gen_integer(gen, ids[i]);
            put_number(gen, "%.9g", (double)logprobs[i]);
            yajl_gen_array_close(gen);
        }
        if (i % n_top == n_top - 1)
            yajl_gen_array_close(gen);
    }
    yajl_gen_array_close(gen);
}

/* The log-probabilities of a prompt, and its perplexity: e to the mean of -log p. */
static void put_scores(yajl_gen gen, const specbatch_result *result)
{
    size_t n, n_top;
    const float *logprobs = specbatch_result_prompt_logprobs(result, &n);
    const int32_t *ids = specbatch_result_prompt_top_ids(result, &n_top);
    double sum = 0.0;

    if (!logprobs)
        return;
    for (size_t i = 0; i < n; i++)
        sum += (double)logprobs[i];
    put_floats(gen, "prompt_logprobs", logprobs, n);
    if (ids)
        put_alternatives(gen, "prompt_top_logprobs", ids,
                         specbatch_result_prompt_top_logprobs(result, NULL), n, n_top);
    put_ratio(gen, "perplexity", exp(-sum / (double)n));
}

static yajl_gen new_gen(int pretty)
{
    yajl_gen gen = yajl_gen_alloc(NULL);
    if (!gen) {
        ex_complain("out of memory");
        exit(EX_FAILED);
    }
    yajl_gen_config(gen, yajl_gen_beautify, pretty);
    return gen;
}

static int flush_gen(yajl_gen gen, FILE *out, int newline)
{
    const unsigned char *text;
    size_t length;
    int ok;

    yajl_gen_get_buf(gen, &text, &length);
    ok = fwrite(text, 1, length, out) == length && (!newline || fputc('\n', out) != EOF);
    yajl_gen_free(gen);
    return ok;
}

int ex_write_result(FILE *out, const char *id, int is_one_of_several,
                    const specbatch_result *result)
{
    size_t n, n_logprobs, n_top, i;
    const int32_t *top_ids = specbatch_result_top_ids(result, &n_top);
    const int32_t *ids = specbatch_result_tokens(result, &n);
    const float *logprobs = specbatch_result_logprobs(result, &n_logprobs);
    const char *text = specbatch_result_text(result, NULL);
    yajl_gen gen = new_gen(0);

    yajl_gen_map_open(gen);
    put_string(gen, "id");
    ex_id_write(gen, id);
    if (is_one_of_several) {
        put_string(gen, "answer");
        yajl_gen_integer(gen, specbatch_result_answer(result));
    }
    put_string(gen, "ids");
    yajl_gen_array_open(gen);
    for (i = 0; i < n; i++)
        yajl_gen_integer(gen, ids[i]);
    yajl_gen_array_close(gen);
    if (text)
        put_named(gen, "text", text);
    put_named(gen, "finish", specbatch_finish_name(specbatch_result_finish(result)));
    if (specbatch_result_status(result) != SPECBATCH_OK)
        put_named(gen, "error", specbatch_status_name(specbatch_result_status(result)));
    if (logprobs)
        put_floats(gen, "logprobs", logprobs, n_logprobs);
    if (top_ids)
        put_alternatives(gen, "top_logprobs", top_ids, specbatch_result_top_logprobs(result, NULL),
                         n, n_top);
    put_scores(gen, result);
    yajl_gen_map_close(gen);
    return flush_gen(gen, out, 1);
}

static void put_settings(yajl_gen gen, const struct ex_stats *stats)
{
    const specbatch_pool_options *pool = &stats->settings->pool;

    put_named(gen, "target", stats->target);
    put_named(gen, "draft", stats->draft);
    put_named(gen, "fingerprint", stats->fingerprint);
    put_named(gen, "policy", specbatch_policy_name(pool->policy));
    put_count(gen, "batch", (uint64_t)pool->batch);
    put_count(gen, "window", (uint64_t)pool->window);
    put_count(gen, "draft_len", pool->draft_len > 0 ? (uint64_t)pool->draft_len : 0);
    put_named(gen, "draft_len_is", pool->flags & SPECBATCH_POOL_FIXED_K ? "fixed" : "a limit");
    put_count(gen, "max_len", (uint64_t)pool->max_len);
    put_named(gen, "slots_are", pool->flags & SPECBATCH_POOL_GROW_SLOTS ? "growing" : "whole");
    put_count(gen, "threads", (uint64_t)pool->n_threads);
    put_count(gen, "max_new", (uint64_t)stats->settings->wish.max_new);
}

/* What the run took of memory, for people: the counters have the bytes. */
static void put_memory(yajl_gen gen, const struct ex_run *run)
{
    static const char *const names[] = {"target", "draft",      "kv_reserved", "kv_live_peak",
                                        "prefix", "activation", "logits",      "table"};
    char counter[40];
    size_t i;

    put_string(gen, "memory_mib");
    yajl_gen_map_open(gen);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(counter, sizeof counter, "%s_bytes", names[i]);
        put_ratio(gen, names[i], (double)ex_run_counter(run, counter) / 1048576.0);
    }
    yajl_gen_map_close(gen);
}

int ex_write_stats(FILE *out, const struct ex_stats *stats)
{
    const struct ex_run *run = stats->run;
    const uint64_t rows = ex_run_counter(run, "decode_rows"),
                   rounds = ex_run_counter(run, "decode_rounds");
    yajl_gen gen = new_gen(1);
    int32_t i;

    yajl_gen_map_open(gen);
    put_settings(gen, stats);
    put_count(gen, "requests", run->n);
    put_count(gen, "tokens", run->n_tokens);
    put_ratio(gen, "seconds", run->seconds);
    put_ratio(gen, "tokens_per_second", (double)run->n_tokens / run->seconds);
    put_ratio(gen, "tokens_per_row_round", ex_ratio(ex_run_counter(run, "tokens_committed"), rows));
    put_ratio(
        gen, "acceptance",
        ex_ratio(ex_run_counter(run, "tokens_accepted"), ex_run_counter(run, "tokens_drafted")));
    put_ratio(gen, "rows_per_round", ex_ratio(rows, rounds));
    put_ratio(gen, "group_rate_of_rows", ex_ratio(ex_run_counter(run, "group_rows"), rows));
    put_ratio(gen, "group_rate_of_rounds", ex_ratio(ex_run_counter(run, "group_rounds"), rounds));
    put_ratio(gen, "realign_share",
              ex_ratio(ex_run_counter(run, "realign_ns"), ex_run_counter(run, "round_ns")));
    if (stats->verified)
        put_count(gen, "equivalent", stats->n_equal);
    put_memory(gen, run);
    put_string(gen, "counters");
    yajl_gen_map_open(gen);
    for (i = 0; i < specbatch_stat_count(); i++)
        put_count(gen, specbatch_stat_name(i), run->counters[i]);
    yajl_gen_map_close(gen);
    yajl_gen_map_close(gen);
    return flush_gen(gen, out, 0);
}
