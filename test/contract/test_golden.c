/*
 * Compares the whole way from a checkpoint to tokens with Hugging Face transformers: the logits and
 * hidden states of every prompt, and the greedy continuations under every policy. Every checkpoint
 * that has a golden beside it is compared, and every architecture must have one.
 *
 * A golden, golden.safetensors, holds what transformers computed for four prompts (i = 0..3) of n
 * tokens. Logits and hidden states are kept of the last k positions of a prompt. k may differ from
 * prompt to prompt; in the tree it is 8 at most where make_golden.py made the checkpoint, else 4.
 *
 *    prompt_i int64 [n]   logits_i f32 [k, V]   hidden_i f32 [layers + 1, k, H]
 *    greedy_i int64 [m]   margin_i f32 [m]      the greedy continuation, and at each of its steps
 *                                               the largest logit minus the second largest
 *
 * Two compute classes are compared, F32 and SPLIT, which is to be as accurate. (Where weights are
 * not bf16 they are the same arithmetic.) BF16 rounds activations, which no golden allows for. F32
 * is compared with caches of 16 bits too.
 *
 * The tolerance with a cache of f32. Both sides compute in float but sum in different orders. A sum
 * of k products then differs by about sqrt(k) * 2^-24 of the size of its terms: for k of some
 * hundreds, values around 10 and a few layers, by some 1e-5. (Measured on llama_mha_f16 against a
 * forward pass in double: this library and transformers are both within 5e-5 of it.) A tolerance of
 * 1e-4 holds for the checkpoints that are compared, with a small factor to spare, and is far below
 * the effect of any wrong detail, such as another epsilon, a wrong rotation or a dropped bias. It
 * is not a bound for every checkpoint: other random ones of 4 layers with logits around 20 were up
 * to 2.2e-4 from transformers, but there transformers itself was up to 2.4e-4 from an evaluation in
 * double, so the difference is the rounding of both sides. Hidden states grow with depth, so their
 * difference is taken relative to the largest value of the same stage. Tokens must be equal
 * wherever the golden's margin is above 1e-3, since no error within the tolerance can overturn such
 * a margin.
 *
 * The tolerance with a cache of 16 bits. A key or value is rounded by u of its size at most: u is
 * 2^-11 for f16 and 2^-8 for bf16. Nothing else is less exact than with f32, so the difference
 * should be some u in each layer, and the same number of them for both types. It is: relative to
 * the largest value of the stage, the largest difference over the checkpoints of 1 to 3 layers was
 * 7.2 u with f16 and 5.9 u with bf16 while every position of the shorter prompts was kept, and
 * relative to the largest logit it was 9.5 u and 7.0 u. (Of the positions kept now it is 5.7 u and
 * 5.4 u, and 5.7 u and 5.5 u.) The bound is 16 u for all four. A checkpoint's hidden states must
 * also differ by u / 4, or the cache was not of the type that was asked for; the least that one
 * differs by is 0.8 u.
 * An error of e in each logit can overturn a margin of 2 e, and changes a log-probability by no
 * more than that.
 */
#include "support/drafts.h"
#include "support/model_files.h"
#include "sbtest.h"

#include "engine/runner.h"
#include "model/shards.h"
#include "port.h"

#define TOLERANCE 1e-4
#define MARGIN 1e-3
#define UNITS 16.0
#define PROMPTS 4
#define TOPS 3 /* alternatives that are compared */

/* ---------------------------------------------------------------------------- the goldens */

struct golden {
    struct sb_tensors *set;
    int32_t *prompt[PROMPTS], *greedy[PROMPTS];
    float *logits[PROMPTS], *hidden[PROMPTS], *margin[PROMPTS];
    int64_t n[PROMPTS];    /* tokens of the prompt */
    int64_t m[PROMPTS];    /* tokens of the greedy continuation */
    int64_t kept[PROMPTS]; /* last positions of the prompt that have logits and hidden states */
    double largest;        /* |logit| of all prompts */
};

/* A numerics class, and the tolerances that it is compared with. */
struct class
{
    int32_t compute, kv;
    const char *name;
    double unit; /* u of the comment above, of a cache of 16 bits; else 0 */
};

/* What the logits may differ by. */
static double logit_tolerance(const struct class *class, const struct golden *g)
{
    return class->unit > 0.0 ? UNITS * class->unit * g->largest : TOLERANCE;
}

/* Beyond which margin tokens must be equal. */
static double margin_tolerance(const struct class *class, const struct golden *g)
{
    return class->unit > 0.0 ? 2.0 * logit_tolerance(class, g) : MARGIN;
}

/* Reads a whole tensor, narrowing int64 to int32; the caller frees it. NULL when the tensor is
 * missing or has another type. *count: the dimension of its tokens, which is the last one but for
 * logits and hidden states, where it is the last but one. */
static void *read_golden(const struct golden *g, const char *name, int i, const char *type,
                         int64_t *count)
{
    char full[32];
    const struct sb_tensor *t;
    char *bytes;

    snprintf(full, sizeof full, "%s_%d", name, i);
    t = sb_tensors_find(g->set, full);
    if (!t || strcmp(t->type, type) != 0 || (bytes = malloc(t->bytes)) == NULL)
        return NULL;
    if (sb_tensors_read(g->set, t, 0, bytes, t->bytes) != SPECBATCH_OK) {
        free(bytes);
        return NULL;
    }
    for (uint64_t at = 0; strcmp(type, "I64") == 0 && at < t->bytes / 8; at++) {
        int64_t wide;
        memcpy(&wide, bytes + 8 * at, 8);
        ((int32_t *)(void *)bytes)[at] = (int32_t)wide;
    }
    *count = t->shape[t->rank > 1 ? t->rank - 2 : 0];
    return bytes;
}

/* vocab: columns of a row of logits */
static int golden_open(struct golden *g, const char *dir, int32_t vocab)
{
    char path[256];
    int good;

    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    good = sb_tensors_open_file(&g->set, &test_mem, path) == SPECBATCH_OK;
    for (int i = 0; good && i < PROMPTS; i++) {
        good &= (g->prompt[i] = read_golden(g, "prompt", i, "I64", &g->n[i])) != NULL;
        good &= (g->logits[i] = read_golden(g, "logits", i, "F32", &g->kept[i])) != NULL;
        good &= (g->hidden[i] = read_golden(g, "hidden", i, "F32", &g->kept[i])) != NULL;
        good &= (g->margin[i] = read_golden(g, "margin", i, "F32", &g->m[i])) != NULL;
        good &= (g->greedy[i] = read_golden(g, "greedy", i, "I64", &g->m[i])) != NULL;
        for (int64_t at = 0; good && at < g->kept[i] * vocab; at++)
            g->largest = fmax(g->largest, fabs((double)g->logits[i][at]));
    }
    return good;
}

static void golden_close(struct golden *g)
{
    for (int i = 0; i < PROMPTS; i++) {
        free(g->prompt[i]);
        free(g->logits[i]);
        free(g->hidden[i]);
        free(g->margin[i]);
        free(g->greedy[i]);
    }
    sb_tensors_close(g->set);
}

/* ------------------------------------------------------------------- logits, hidden states */

struct tapped {
    const float *golden; /* [layers + 1, kept, hidden] */
    int64_t kept;
    double worst; /* the largest |difference| / max(1, largest value of the stage) */
    int stages;   /* how many were compared */
};

/* Compares the last `kept` rows of a stage. They can be read here, since the CPU's device memory is
 * ordinary memory. */
static void compare_stage(void *user, int32_t stage, const float *x, int32_t rows, int32_t hidden)
{
    struct tapped *t = user;
    const int64_t count = t->kept * hidden;
    const float *expected = t->golden + stage * count, *got = x + (rows - t->kept) * hidden;
    double largest = 1.0, worst = 0.0;

    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)expected[i]));
        worst = isnan(got[i]) ? INFINITY : worst;
    }
    t->worst = fmax(t->worst, worst / largest);
    t->stages++;
}

/* Computes prompt i in one pass and compares it. The sequence starts at column i of its slot, so
 * that from the second prompt on there are columns before it which attention must leave out. */
static int run_prompt(struct specbatch_model *model, const struct golden *g, int i, double *logits,
                      struct tapped *tap)
{
    const int32_t n = (int32_t)g->n[i];
    const int64_t count = g->kept[i] * model->config.vocab;
    const struct sb_runner_limits limits = {.max_tokens = n,
                                            .max_seqs = 1,
                                            .max_out = n,
                                            .n_passes = 1,
                                            .n_slots = 2,
                                            .n_columns = 2 * (int64_t)(n + PROMPTS),
                                            .cap = n + PROMPTS,
                                            .n_threads = 2};
    struct sb_runner runner = {.tap = {compare_stage, tap}};
    struct sb_fp_env env;
    int good;

    sb_port_fp_enter(&env);
    good = sb_runner_create(&runner, model, &test_mem, &limits, NULL) == SPECBATCH_OK;
    if (good) {
        const float *got = runner.logits + (int64_t)(n - g->kept[i]) * model->config.vocab;
        int32_t seq;
        sb_pass_begin(&runner, 0);
        seq = sb_pass_add_seq(&runner, limits.cap, limits.cap, i);
        for (int32_t p = 0; p < n; p++)
            sb_pass_add_token(&runner, seq, p, p, p);
        good = sb_pass_issue(&runner, 0, g->prompt[i]) == SPECBATCH_OK &&
               runner.backend->exec_sync(runner.exec) == SPECBATCH_OK;
        for (int64_t at = 0; good && at < count; at++) {
            const double difference = fabs((double)got[at] - (double)g->logits[i][at]);
            *logits = isnan(difference) ? INFINITY : fmax(*logits, difference);
        }
    }
    sb_runner_free(&runner);
    sb_port_fp_leave(&env);
    return good;
}

/* Compares all four prompts and prints the largest differences. Returns 1 when they are within the
 * tolerance. */
static int check_numbers(struct specbatch_model *model, const struct golden *g,
                         const struct class *class, const char *name)
{
    const double hidden_tolerance = class->unit > 0.0 ? UNITS * class->unit : TOLERANCE;
    double logits = 0.0, hidden = 0.0;
    int good = 1;

    for (int i = 0; i < PROMPTS; i++) {
        struct tapped tap = {g->hidden[i], g->kept[i], 0.0, 0};
        good &= run_prompt(model, g, i, &logits, &tap);
        good &= tap.stages == model->config.layers + 1;
        hidden = fmax(hidden, tap.worst);
    }
    printf("     %-40s logits %.1e, hidden %.1e\n", name, logits, hidden);
    return good && logits < logit_tolerance(class, g) && hidden < hidden_tolerance &&
           hidden >= class->unit / 4.0;
}

/* --------------------------------------------------------------------------------- tokens */

struct tally {
    const struct class *class;
    int compared, equal, near_ties, wrong;
};

/* The log-probability of a token, computed from the golden's logits at a position of the prompt of
 * which they are kept: `back` before the last one. */
static double golden_logprob(const struct golden *g, int i, int32_t vocab, int64_t back, int32_t id)
{
    const float *row = g->logits[i] + (g->kept[i] - 1 - back) * vocab;
    double sum = 0.0;

    for (int32_t v = 0; v < vocab; v++)
        sum += exp((double)row[v] - (double)row[id]);
    return -log(sum);
}

/* Whether the prompt's log-probabilities and their alternatives' are the golden's where that has
 * kept logits. */
static int has_golden_scores(const struct golden *g, int i, const specbatch_result *result,
                             int32_t vocab, double tolerance)
{
    size_t n, n_top;
    const float *logprobs = specbatch_result_prompt_logprobs(result, &n);
    const float *tops = specbatch_result_prompt_top_logprobs(result, NULL);
    const int32_t *ids = specbatch_result_prompt_top_ids(result, &n_top);

    if ((int64_t)n != g->n[i] - 1 || n_top != TOPS)
        return n == 0 && g->n[i] == 1;
    for (int64_t back = 1; back < g->kept[i]; back++) {
        const int64_t at = g->n[i] - 1 - back; /* whose logits tell of the token behind it */
        if (fabs(golden_logprob(g, i, vocab, back, g->prompt[i][at + 1]) - (double)logprobs[at]) >
            tolerance)
            return 0;
        for (int64_t k = at * TOPS; k < (at + 1) * TOPS; k++)
            if (fabs(golden_logprob(g, i, vocab, back, ids[k]) - (double)tops[k]) > tolerance)
                return 0;
    }
    return 1;
}

/* Compares a result with the golden's continuation. Where the two best logits are nearly equal, the
 * tokens may differ; from there on the contexts differ too, so the comparison ends. */
static void compare_tokens(struct tally *tally, const struct golden *g, int i,
                           const specbatch_result *result, int32_t vocab)
{
    size_t n = 0, n_logprobs = 0;
    const int32_t *tokens = specbatch_result_tokens(result, &n);
    const float *logprobs = specbatch_result_logprobs(result, &n_logprobs);
    const double margin = margin_tolerance(tally->class, g),
                 logprob = tally->class->unit > 0.0 ? margin : TOLERANCE;

    if (specbatch_result_status(result) != SPECBATCH_OK || (int64_t)n != g->m[i] ||
        n_logprobs != n || specbatch_result_prompt_length(result) != (size_t)g->n[i]) {
        tally->wrong++;
        return;
    }
    tally->wrong += tokens[0] == g->greedy[i][0] &&
                    fabs(golden_logprob(g, i, vocab, 0, tokens[0]) - (double)logprobs[0]) > logprob;
    tally->wrong += !has_golden_scores(g, i, result, vocab, logprob);
    for (int64_t j = 0; j < g->m[i]; j++) {
        tally->compared++;
        if (tokens[j] != g->greedy[i][j]) {
            tally->wrong += (double)g->margin[i][j] > margin;
            tally->near_ties += (double)g->margin[i][j] <= margin;
            return;
        }
        tally->equal++;
    }
}

/* Runs all four prompts through one pool and compares what it generates. */
static int32_t generate(struct tally *tally, specbatch_model *target, specbatch_model *draft,
                        const struct golden *g, int32_t policy, int32_t batch)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    size_t active = 1, collected = 0;
    int32_t rc;

    options.policy = policy;
    options.batch = batch;
    options.n_threads = 1;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS |
                    SPECBATCH_REQUEST_PROMPT_LOGPROBS;
    request.top_logprobs = TOPS;
    rc = create_with_model(&pool, target, draft, &options);
    for (int i = 0; rc == SPECBATCH_OK && i < PROMPTS; i++) {
        request.ids = g->prompt[i];
        request.n_ids = (size_t)g->n[i];
        request.max_new = (int32_t)g->m[i];
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    while (rc == SPECBATCH_OK && active > 0) {
        rc = specbatch_pool_step(pool, &active);
        while (rc == SPECBATCH_OK && specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
            compare_tokens(tally, g, (int)specbatch_result_id(result) - 1, result,
                           specbatch_model_vocab_size(target));
            specbatch_result_free(result);
            collected++;
        }
    }
    specbatch_pool_free(pool);
    return rc != SPECBATCH_OK ? rc : collected == PROMPTS ? SPECBATCH_OK : SPECBATCH_E_INTERNAL;
}

/* ------------------------------------------------------------------------------ the tests */

struct opened {
    specbatch_model *target, *draft;
    struct golden golden;
    char name[64]; /* of the checkpoint and the class, for what is printed */
};

static const struct class classes[] = {
    {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F32, "f32", 0.0},
    {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_F32, "split", 0.0},
    {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F16, "kv f16", 0x1p-11},
    {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16, "kv bf16", 0x1p-8},
    {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_BF16, "split, kv bf16", 0x1p-8}};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Opens a checkpoint, its draft and its golden. A checkpoint without a draft is its own draft, and
 * every proposal is then right. */
static int open_all(struct opened *o, const char *root, const char *name, const struct class *class)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    char dir[128], draft[140];

    memset(o, 0, sizeof *o);
    snprintf(o->name, sizeof o->name, "%s, %s", name, class->name);
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    snprintf(draft, sizeof draft, "%s.draft", dir);
    options.compute = class->compute;
    options.kv = class->kv;
    if (specbatch_model_open(&o->target, dir, &options) != SPECBATCH_OK ||
        !golden_open(&o->golden, dir, specbatch_model_vocab_size(o->target)))
        return 0;
    if (access(draft, R_OK) == 0)
        return specbatch_model_open(&o->draft, draft, &options) == SPECBATCH_OK;
    o->draft = o->target;
    specbatch_model_retain(o->draft);
    return 1;
}

static void close_all(struct opened *o)
{
    specbatch_model_close(o->target);
    specbatch_model_close(o->draft);
    golden_close(&o->golden);
}

static void numbers_of(const char *root, const char *name, const struct class *class)
{
    struct opened o;
    int good = open_all(&o, root, name, class);

    good = good && check_numbers(o.target, &o.golden, class, o.name);
    close_all(&o);
    if (!good)
        FAIL("%s differs from its golden, or does not open (%s)", o.name, specbatch_last_error());
}

static void tokens_of(const char *root, const char *name, const struct class *class)
{
    struct tally tally = {class, 0, 0, 0, 0};
    struct opened o;
    int32_t rc = open_all(&o, root, name, class) ? SPECBATCH_OK : SPECBATCH_E_IO;

    for (int32_t policy = 0; rc == SPECBATCH_OK && policy < specbatch_policy_count(); policy++)
        for (int32_t batch = 1; rc == SPECBATCH_OK && batch <= 4; batch += 3)
            rc = generate(&tally, o.target, o.draft, &o.golden, policy, batch);
    close_all(&o);
    CHECK_OK(rc);
    printf("     %-40s %d of %d tokens equal, %d near ties\n", o.name, tally.equal, tally.compared,
           tally.near_ties);
    if (tally.wrong > 0 || tally.equal == 0)
        FAIL("%s: %d results differ from the golden", o.name, tally.wrong);
}

#define IN_TREE "test/data/models"
#define OUTSIDE "../shared/data/reference"

/* Runs a check on every checkpoint of a folder that has a golden, in every class, up to the first
 * that fails. */
static void for_each_golden(const char *root, void (*check)(const char *root, const char *name,
                                                            const struct class *class))
{
    struct dirent **entries = NULL;
    const int n = scandir(root, &entries, NULL, alphasort);
    char path[600];
    int n_checked = 0;

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%.255s/golden.safetensors", root, entries[i]->d_name);
        for (int c = 0; !sbtest_failed_now && access(path, R_OK) == 0 && c < CLASSES; c++) {
            check(root, entries[i]->d_name, &classes[c]);
            n_checked++;
        }
        free(entries[i]);
    }
    free(entries);
    if (n_checked == 0)
        FAIL("%s has no golden", root);
}

static char seen[1024]; /* the architectures of the tree's goldens: " glm4 llama " and so on */

static void note_architecture(const char *root, const char *name, const struct class *class)
{
    struct sb_config config;
    char dir[128];
    size_t n = strlen(seen);

    (void)class;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    CHECK_OK(sb_config_load(&config, &test_mem, &(struct sb_log){0}, dir));
    snprintf(seen + n, sizeof seen - n, " %s ", config.arch->model_type);
}

static void every_architecture_has_a_golden(void)
{
    char all[512], word[64];

    for_each_golden(IN_TREE, note_architecture);
    sb_arch_list(all, sizeof all);
    for (const char *at = all; !sbtest_failed_now && *at; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, " %.*s ", (int)n, at);
        if (!strstr(seen, word))
            FAIL("no checkpoint in " IN_TREE " with a golden has the architecture%s", word);
        at += n;
    }
}

static void numbers_in_tree(void)
{
    for_each_golden(IN_TREE, numbers_of);
}

static void tokens_in_tree(void)
{
    for_each_golden(IN_TREE, tokens_of);
}

static void numbers_of_the_whole_set(void)
{
    if (access(OUTSIDE, R_OK) != 0)
        SKIP("%s is not there; the checkpoints in the tree were compared", OUTSIDE);
    for_each_golden(OUTSIDE, numbers_of);
}

static void tokens_of_the_whole_set(void)
{
    if (access(OUTSIDE, R_OK) != 0)
        SKIP("%s is not there; the checkpoints in the tree were compared", OUTSIDE);
    for_each_golden(OUTSIDE, tokens_of);
}

TEST_BEGIN
RUN(every_architecture_has_a_golden);
RUN(numbers_in_tree);
RUN(tokens_in_tree);
RUN(numbers_of_the_whole_set);
RUN(tokens_of_the_whole_set);
TEST_END
