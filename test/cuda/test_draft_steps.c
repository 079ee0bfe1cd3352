/*
 * The steps of a draft as one launch, beside the same steps as single operations. On random weights
 * both must propose the same nearly always, and the residual streams must differ by no more than
 * roundings do. Beside other rows, on devices with other numbers of blocks, the
 * proposals of a row must be the same to the last one.
 */
#include "cudasim.h"

#include <math.h>

#include "engine/runner.h"
#include "port.h"
#include "sbtest.h"
#include "status.h"

static const struct sb_mem mem = {NULL, NULL, NULL};

/* CHUNK: with more tokens a pass, cuBLASLt would be tested at every opening. */
enum { TEXTS = 4, ROWS = 9, STEPS = 4, MOST_STEPS = 10, CAP = 320, STRIDE = MOST_STEPS + 1 };
enum { CHUNK = 64 };

/* A draft at work: rows of known texts, which lack the last token or the last two in the cache. */
struct job {
    struct specbatch_model *model;
    int32_t n_rows, is_draft;
    const int32_t *rows;      /* which texts */
    const int32_t *lengths;   /* [TEXTS] of the texts */
    int32_t n_steps, at_once; /* at_once: steps of a launch; 0: as many as the engine takes */
    const struct sb_backend *backend; /* to prepare the steps, or NULL: the model's */
    int32_t is_judged;          /* the engine's steps give the proposals' log-probabilities, too */
    int32_t ids[ROWS * STRIDE]; /* results: last token | proposals, of each row */
    float x[2 * ROWS][512];     /* the residual stream after the last step */
    float logprob[ROWS * STRIDE]; /* of the ids, if it is judged */
    int64_t launches;             /* of the steps */
};

static int32_t texts[TEXTS][CAP];
/* On both sides of the ends of parts of 128 keys: at most two parts, and three. */
static const int32_t short_texts[TEXTS] = {5, 128, 2, 129};
static const int32_t long_texts[TEXTS] = {5, 257, 2, 300};

static void make_texts(int32_t vocab)
{
    uint32_t seed = 7;

    for (int32_t i = 0; i < TEXTS * CAP; i++) {
        seed = seed * 1664525u + 1013904223u;
        texts[i / CAP][i % CAP] = (int32_t)((seed >> 8) % (uint32_t)vocab);
    }
}

/* Whether a row has a gap of two tokens when the steps begin. */
static int has_gap(int32_t row)
{
    return row % 3 == 1;
}

/* Fills the caches by single operations: all but the last one or two tokens of each text. */
static int32_t fill(struct sb_runner *r, const struct job *job, int32_t *dev)
{
    int32_t rc = SPECBATCH_OK;

    for (int32_t b = 0; b < job->n_rows; b++) {
        const int32_t row = job->rows[b], n = job->lengths[row] - 1 - has_gap(row);
        if (n < 1)
            continue;
        SB_TRY(r->backend->upload(NULL, dev, texts[row], CAP * sizeof *dev));
        for (int32_t i = 0; i < n;) {
            sb_pass_begin(r, 0);
            const int32_t seq = sb_pass_add_seq(r, (int64_t)b * CAP, CAP, 0);
            for (int32_t end = n < i + CHUNK ? n : i + CHUNK; i < end; i++)
                sb_pass_add_token(r, seq, i, i, -1);
            SB_TRY(sb_pass_issue(r, 0, dev));
            SB_TRY(r->backend->exec_sync(r->exec));
        }
    }
done:
    return rc;
}

/* Builds step j. The tokens of gaps lie behind those of the rows. */
static void build(struct sb_runner *r, const struct job *job, int32_t j)
{
    sb_pass_begin(r, j);
    for (int32_t b = 0; b < job->n_rows; b++) {
        const int32_t row = job->rows[b], pos = job->lengths[row] - 1 + j;
        const int32_t seq = sb_pass_add_seq(r, (int64_t)b * CAP, CAP, 0);
        if (j == 0 && has_gap(row))
            sb_pass_add_token(r, seq, pos - 1, ROWS * STRIDE + b, -1);
        sb_pass_add_token(r, seq, pos, b * STRIDE + j, b * STRIDE + j + 1);
    }
}

/* Issues all steps, as the engine does or so many a launch. */
static void issue(struct sb_runner *r, const struct job *job, int32_t *dev, float *logprob)
{
    struct sb_draft_step steps[MOST_STEPS];
    const int32_t vocab = job->model->config.vocab;

    if (job->at_once == 0) {
        sb_steps_run(r, 0, job->n_steps, vocab, NULL, dev, job->is_judged ? logprob : NULL);
        return;
    }
    for (int32_t j = 0; j < job->n_steps; j++)
        steps[j] = sb_step_on_device(r, j, dev);
    for (int32_t j = 0, n; j < job->n_steps; j += n) {
        n = job->n_steps - j < job->at_once ? job->n_steps - j : job->at_once;
        CHECK(r->backend->steps(r->exec, steps + j, n, vocab, dev, NULL));
    }
}

static int32_t run(struct job *job)
{
    const int32_t hidden = job->model->config.hidden;
    const struct sb_runner_limits limits = {.max_tokens = CHUNK,
                                            .max_seqs = ROWS,
                                            .max_out = ROWS,
                                            .n_passes = job->n_steps,
                                            .n_slots = ROWS,
                                            .cap = CAP,
                                            .n_columns = ROWS * CAP,
                                            .n_threads = 1,
                                            .is_draft = job->is_draft};
    struct sb_runner runner = {.model = NULL};
    int32_t host[ROWS * STRIDE + CAP] = {0}, rc = SPECBATCH_OK;
    void *dev = NULL;
    float *logprob;
    size_t block;

    SB_TRY(sb_runner_create(&runner, job->model, &mem, &limits, NULL));
    runner.backend = job->backend ? job->backend : runner.backend;
    if (job->is_draft)
        SB_TRY(sb_steps_prepare(&runner));
    SB_TRY(
        runner.backend->alloc(&dev, job->model->device, &mem, sizeof host + sizeof job->logprob));
    logprob = (float *)((char *)dev + sizeof host);
    SB_TRY(fill(&runner, job, dev));
    for (int32_t b = 0; b < job->n_rows; b++) {
        const int32_t n = job->lengths[job->rows[b]];
        host[b * STRIDE] = texts[job->rows[b]][n - 1];
        host[ROWS * STRIDE + b] = texts[job->rows[b]][n - 2];
    }
    SB_TRY(runner.backend->upload(NULL, dev, host, sizeof host));
    for (int32_t j = 0; j < job->n_steps; j++)
        build(&runner, job, j);
    SB_TRY(runner.backend->exec_sync(runner.exec));
    job->launches = cudasim_launches();
    block = (size_t)(runner.passes[1].host - runner.passes[0].host);
    SB_TRY(runner.backend->upload(runner.exec, runner.passes[0].dev, runner.passes[0].host,
                                  (size_t)job->n_steps * block));
    issue(&runner, job, dev, logprob);
    SB_TRY(runner.backend->exec_sync(runner.exec));
    job->launches = cudasim_launches() - job->launches;
    SB_TRY(runner.backend->download(NULL, job->ids, dev, sizeof job->ids));
    if (job->is_judged)
        SB_TRY(runner.backend->download(NULL, job->logprob, logprob, sizeof job->logprob));
    for (int32_t b = 0; b < job->n_rows && hidden <= 512; b++)
        SB_TRY(runner.backend->download(NULL, job->x[b], runner.x + (size_t)b * (size_t)hidden,
                                        (size_t)hidden * sizeof(float)));
done:
    if (dev)
        job->model->backend->free(job->model->device, &mem, dev);
    sb_runner_free(&runner);
    return rc;
}

static int32_t open_on(struct specbatch_model **out, const char *path, int32_t compute,
                       int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = compute;
    options.weights = weights;
    *out = NULL;
    return specbatch_model_open(out, path, &options);
}

/* How many proposals of row b are those of `other`, up to the first that differs. */
static int32_t agreed(const struct job *job, int32_t b, const struct job *other, int32_t at)
{
    int32_t n = 0;

    while (n < job->n_steps && job->ids[b * STRIDE + n + 1] == other->ids[at * STRIDE + n + 1])
        n++;
    return n;
}

/* Whether a row has had the same tokens in both jobs when its last residual stream was computed. */
static int is_comparable(const struct job *job, const struct job *other, int32_t b)
{
    return agreed(job, b, other, b) >= job->n_steps - 1;
}

/* How far the residual streams of a job are from those of an exact one: the root of the mean square
 * of the differences. Only rows that are comparable in three jobs count; NAN: there is none. */
static double rounding(const struct job *job, const struct job *other, const struct job *exact,
                       int32_t hidden)
{
    double sum = 0.0;
    int32_t n = 0;

    for (int32_t b = 0; b < job->n_rows; b++)
        if (is_comparable(job, exact, b) && is_comparable(other, exact, b)) {
            for (int32_t i = 0; i < hidden; i++)
                sum += pow((double)job->x[b][i] - exact->x[b][i], 2.0);
            n += hidden;
        }
    return n > 0 ? sqrt(sum / n) : NAN;
}

static const int32_t all_rows[TEXTS] = {0, 1, 2, 3};

/* What the steps of a draft may lose: as little as single operations of the same class do, measured
 * by the f32 class. Nearly all proposals are theirs, or the f32 class's: where two tokens are
 * nearly equally probable, the two differ as well. */
static void check_texts(const char *path, const int32_t *lengths, int32_t weights,
                        int is_one_launch)
{
    static struct job one, single, exact, part;
    struct specbatch_model *model, *in_f32;
    int32_t same = 0;
    double of_one, of_single;

    CHECK_OK(open_on(&model, path, SPECBATCH_COMPUTE_BF16, weights));
    CHECK_OK(open_on(&in_f32, path, SPECBATCH_COMPUTE_F32, weights));
    make_texts(model->config.vocab);
    one = (struct job){.model = model, .n_rows = TEXTS, .is_draft = 1, .rows = all_rows};
    one.lengths = lengths;
    one.n_steps = STEPS;
    single = exact = one;
    single.is_draft = exact.is_draft = 0;
    exact.model = in_f32;
    CHECK_OK(run(&one));
    CHECK_OK(run(&single));
    CHECK_OK(run(&exact));
    for (int32_t b = 0; b < TEXTS; b++) {
        const int32_t with_single = agreed(&one, b, &single, b),
                      with_exact = agreed(&one, b, &exact, b);
        same += with_single > with_exact ? with_single : with_exact;
    }
    of_one = rounding(&one, &single, &exact, model->config.hidden);
    of_single = rounding(&single, &one, &exact, model->config.hidden);
    printf("     %s: %d of %d proposals agree; away from the f32 class by %.3g, and by %.3g in "
           "single operations; %d launches for %d\n",
           path, (int)same, TEXTS * STEPS, of_one, of_single, (int)one.launches,
           (int)single.launches);
    CHECK(same * 100 >= TEXTS * STEPS * 90);
    CHECK(of_one < 1.5 * of_single);
    CHECK_INT(one.launches == 1, is_one_launch);
    /* rows alone, and three in another order */
    for (int32_t b = 0; b < TEXTS; b += 3) {
        const int32_t rows[3] = {(b + 2) % TEXTS, b, (b + 1) % TEXTS};
        part = one;
        part.rows = b % 2 ? rows + 1 : rows;
        part.n_rows = b % 2 ? 1 : 3;
        CHECK_OK(run(&part));
        CHECK_INT(agreed(&one, b, &part, b % 2 ? 0 : 1), STEPS);
    }
    specbatch_model_close(in_f32);
    specbatch_model_close(model);
}

static void check_model(const char *path, int32_t weights, int is_one_launch)
{
    check_texts(path, short_texts, weights, is_one_launch);
}

static void test_steps_of_qwen3(void)
{
    check_model("test/data/models/qwen3_untied_f32_sharded.draft", SPECBATCH_WEIGHTS_AUTO, 1);
}
static void test_steps_of_llama(void)
{
    check_model("test/data/models/llama_untied_f32_sharded.draft", SPECBATCH_WEIGHTS_AUTO, 1);
}
static void test_steps_with_biases(void)
{
    check_model("test/data/models/qwen2_tied_f32", SPECBATCH_WEIGHTS_AUTO, 1);
    check_model("test/data/models/llama3_scaled_biased_tied_bf16", SPECBATCH_WEIGHTS_AUTO, 1);
}
static void test_steps_with_wide_heads(void)
{
    check_model("test/data/models/long_qwen3_hd128_bf16", SPECBATCH_WEIGHTS_AUTO, 1);
}
/* Several blocks share the keys of a head. */
static void test_steps_of_long_texts(void)
{
    check_texts("test/data/models/qwen3_untied_f32_sharded.draft", long_texts,
                SPECBATCH_WEIGHTS_AUTO, 1);
}

/* Two rows beside single operations, one of them with a gap and keys in two parts. most: how far
 * their residual streams may be apart. It is short, as the mutations of the kernel are tried on it
 * (check_kernel_mutations.sh). */
static void check_two_rows(const char *path, double most)
{
    static struct job one, single;
    static const int32_t rows[] = {1, 2}, lengths[TEXTS] = {0, 216, 3, 0};
    double apart;

    CHECK_OK(open_on(&one.model, path, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    make_texts(one.model->config.vocab);
    one.n_rows = 2;
    one.rows = rows;
    one.lengths = lengths;
    one.n_steps = 3;
    one.is_draft = 0;
    single = one;
    one.is_draft = 1;
    CHECK_OK(run(&one));
    CHECK_OK(run(&single));
    CHECK_INT(one.launches, 1);
    for (int32_t b = 0; b < one.n_rows; b++) /* others would not count */
        CHECK(is_comparable(&one, &single, b));
    apart = rounding(&one, &single, &single, one.model->config.hidden);
    printf("     the residual streams are apart by %.3g\n", apart);
    CHECK(apart < most);
    specbatch_model_close(one.model);
}
static void test_steps_of_two_rows(void)
{
    check_two_rows("test/data/models/qwen3_untied_f32_sharded.draft", 0.03);
}

/* The first has one layer and four blocks: a block has fewer items a step than the ring has slots,
 * so the ring is a step ahead, at the keys that the steps make. */
static void test_steps_a_step_ahead(void)
{
    check_two_rows("test/data/models/emoji", 0.2);
    check_two_rows("test/data/models/long_qwen3_hd128_bf16", 0.2);
}

/* A launch takes up to eight tokens a step, and steps of up to four have tags. A row's bits are
 * those that it has among fewer rows. With more tokens in the first step, which closes gaps, that
 * one is single operations, and with more in all of them, all are. */
static void test_steps_of_many_rows(void)
{
    static struct job few, many, single;
    static const int32_t n_rows[] = {6, 8, 9};
    static int32_t rows[ROWS];

    for (int32_t b = 0; b < ROWS; b++)
        rows[b] = b % TEXTS == 0 ? 1 : b % TEXTS == 1 ? 0 : b % TEXTS;
    few = (struct job){.n_rows = TEXTS, .is_draft = 1, .rows = all_rows, .lengths = short_texts};
    few.n_steps = STEPS;
    CHECK_OK(open_on(&few.model, "test/data/models/qwen3_untied_f32_sharded.draft",
                     SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    make_texts(few.model->config.vocab);
    single = few;
    single.is_draft = 0;
    CHECK_OK(run(&few));
    CHECK_OK(run(&single));
    for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
        const int64_t launches[] = {1, single.launches / STEPS + 1, single.launches};
        many = few;
        many.rows = rows;
        many.n_rows = n_rows[i];
        CHECK_OK(run(&many));
        CHECK_INT(many.launches, launches[i]);
        for (int32_t b = 0; b < many.n_rows; b++) {
            const int32_t with_few = agreed(&many, b, &few, rows[b]),
                          with_single = agreed(&many, b, &single, rows[b]);
            CHECK_INT(with_few > with_single ? with_few : with_single, STEPS);
            if (i == 0)
                CHECK_MEM(many.x[b], few.x[rows[b]], sizeof few.x[0]);
        }
    }
    specbatch_model_close(few.model);
}

/* Ten steps as two launches, which is what the engine makes of them, and as four. */
static void test_steps_in_several_launches(void)
{
    static struct job first, other;
    static const int32_t at_once[] = {0, 3}, launches[] = {2, 4};

    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        struct job *job = i == 0 ? &first : &other;
        *job = (struct job){.n_rows = TEXTS, .is_draft = 1, .rows = all_rows};
        job->lengths = long_texts;
        job->n_steps = MOST_STEPS;
        job->at_once = at_once[i];
        CHECK_OK(open_on(&job->model, "test/data/models/qwen3_untied_f32_sharded.draft",
                         SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
        make_texts(job->model->config.vocab);
        CHECK_OK(run(job));
        specbatch_model_close(job->model);
        CHECK_INT(job->launches, launches[i]);
        if (i > 0) {
            CHECK_MEM(other.ids, first.ids, sizeof first.ids);
            CHECK_MEM(other.x, first.x, sizeof first.x);
        }
    }
}

/* How many log-probabilities are those of single operations but for roundings; up to each row's
 * first proposal that is another. -1: one is further away */
static int32_t compare_logprobs(const struct job *job, const struct job *single)
{
    int32_t n = 0;

    for (int32_t b = 0; b < job->n_rows; b++)
        for (int32_t j = 1; j <= agreed(job, b, single, b); j++, n++)
            if (!(fabsf(job->logprob[b * STRIDE + j] - single->logprob[b * STRIDE + j]) < 0.05f))
                return -1;
    return n;
}

/* Where probabilities are wanted, or proposals are sampled, a step is a launch of its own, whose
 * logits the selection takes. So proposals are the same as in one launch, and their
 * log-probabilities nearly those of single operations. Steps of four rows have tags. */
static void test_steps_that_leave_logits(void)
{
    static struct job greedy, judged, single;
    static const int32_t n_rows[] = {4, 6};
    static int32_t rows[ROWS];

    for (int32_t b = 0; b < ROWS; b++)
        rows[b] = b % 3; /* of the short ones */
    greedy = (struct job){.is_draft = 1, .rows = rows, .lengths = short_texts};
    CHECK_OK(open_on(&greedy.model, "test/data/models/qwen3_untied_f32_sharded.draft",
                     SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    make_texts(greedy.model->config.vocab);
    for (size_t i = 0; i < sizeof n_rows / sizeof *n_rows; i++) {
        greedy.n_rows = n_rows[i];
        greedy.n_steps = i == 0 ? STEPS : 2;
        judged = greedy;
        judged.is_judged = 1;
        CHECK_OK(run(&greedy));
        CHECK_OK(run(&judged));
        CHECK_INT(greedy.launches, 1);
        CHECK_INT(judged.launches, 2 * greedy.n_steps); /* the step, and a selection */
        CHECK_MEM(judged.ids, greedy.ids, sizeof greedy.ids);
        CHECK_MEM(judged.x, greedy.x, sizeof greedy.x);
        if (i > 0)
            continue;
        single = judged;
        single.is_draft = 0;
        CHECK_OK(run(&single));
        CHECK(compare_logprobs(&judged, &single) >= n_rows[i] * (STEPS - 1));
    }
    specbatch_model_close(greedy.model);
}

enum { REQUESTS = 5, PROMPT = 12, NEW = 14 };

/* What a pool has made of requests, of which every second samples. */
struct answered {
    int32_t tokens[REQUESTS][NEW];
    uint64_t drafted, accepted;
    int64_t launches;
};

static int32_t submit(specbatch_pool *pool, int32_t i)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;

    sampling.seed = (uint64_t)i;
    sampling.temperature = i % 2 ? 0.0f : 0.8f;
    sampling.top_k = 40;
    request.ids = texts[0] + i;
    request.n_ids = PROMPT;
    request.max_new = NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.sampling = &sampling;
    request.user = (void *)(intptr_t)i;
    return specbatch_pool_submit(pool, &request, NULL);
}

static int32_t answer(struct answered *answered, specbatch_model *model, specbatch_draft *draft,
                      float min_prob)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    int32_t rc = SPECBATCH_OK;

    options.batch = draft ? 4 : 1;
    options.draft_len = 3;
    options.draft_min_prob = min_prob;
    options.max_len = 64;
    options.prefill_chunk = 8; /* no product has many rows, which would be tested */
    options.flags = SPECBATCH_POOL_FIXED_K;
    memset(answered, 0, sizeof *answered);
    SB_TRY(specbatch_pool_create(&pool, model, draft, &options));
    answered->launches = cudasim_launches();
    for (int32_t i = 0; i < REQUESTS; i++)
        SB_TRY(submit(pool, i));
    SB_TRY(specbatch_pool_run(pool));
    answered->launches = cudasim_launches() - answered->launches;
    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        size_t n;
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        if (n == NEW)
            memcpy(answered->tokens[(intptr_t)specbatch_result_user(result)], tokens,
                   NEW * sizeof *tokens);
        specbatch_result_free(result);
    }
    SB_TRY(specbatch_pool_stat(pool, "tokens_drafted", &answered->drafted));
    SB_TRY(specbatch_pool_stat(pool, "tokens_accepted", &answered->accepted));
done:
    specbatch_pool_free(pool);
    return rc;
}

/* A model that is its own draft samples what it will verify, nearly always: both use the noise of
 * the request and the position. So a step whose sampler got other logits, or another row's, shows
 * in what is accepted, and its tokens are plain decoding's all the same. */
static void test_sampled_rounds(void)
{
    static const float min_probs[] = {0.0f, 0.001f}; /* recorded rounds, and others */
    static struct answered plain, drafted;
    specbatch_model *model;
    specbatch_draft *draft;

    CHECK_OK(open_on(&model, "test/data/models/qwen3_untied_f32_sharded.draft",
                     SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    make_texts(model->config.vocab);
    CHECK_OK(specbatch_draft_from_model(&draft, model));
    CHECK_OK(answer(&plain, model, NULL, 0.0f));
    for (size_t i = 0; i < sizeof min_probs / sizeof *min_probs; i++) {
        CHECK_OK(answer(&drafted, model, draft, min_probs[i]));
        printf("     %d of %d proposals accepted, %d launches\n", (int)drafted.accepted,
               (int)drafted.drafted, (int)drafted.launches);
        CHECK_MEM(drafted.tokens, plain.tokens, sizeof plain.tokens);
        CHECK(drafted.drafted > 40 && drafted.accepted * 100 >= drafted.drafted * 90);
    }
    specbatch_draft_release(draft);
    specbatch_model_close(model);
}

/* GLM-4 and Gemma 3 norm the outputs of blocks, quantised weights lie in tiles of their own, and
 * layers of Mistral and Gemma 3 have windows, which the one launch does not know. */
static void test_steps_that_do_not_suit(void)
{
    check_texts("test/data/models/mistral_window_bf16", long_texts, SPECBATCH_WEIGHTS_AUTO, 0);
    check_texts("test/data/models/gemma3_bf16", long_texts, SPECBATCH_WEIGHTS_AUTO, 0);
    check_model("test/data/models/glm4_unbiased_bf16", SPECBATCH_WEIGHTS_AUTO, 0);
    check_model("test/data/models/llama_untied_f32_sharded.draft", SPECBATCH_WEIGHTS_Q8, 0);
    check_model("test/data/models/qwen3_untied_f32_sharded.draft", SPECBATCH_WEIGHTS_Q4, 0);
}

/* What is odd in a model that would suit otherwise. */
enum { GELU, SCALED, WINDOWED, TWO_TABLES, ODD };
static int odd;
static int32_t (*prepare)(struct sb_exec *, const struct sb_step_model *,
                          const struct sb_step_layer *);

static int32_t prepare_odd(struct sb_exec *exec, const struct sb_step_model *model,
                           const struct sb_step_layer *layers)
{
    enum { MOST = 8 };
    struct sb_step_model given = *model;
    struct sb_step_layer all[MOST], *last = &all[model->n_layers - 1];

    memcpy(all, layers, (size_t)model->n_layers * sizeof *all);
    given.gate = odd == GELU ? SB_GATE_GELU : SB_GATE_SILU;
    given.embed_scale = odd == SCALED ? 2.0f : 1.0f;
    last->attention.window = odd == WINDOWED ? 7 : 0;
    last->attention.cos += odd == TWO_TABLES;
    return prepare(exec, &given, all);
}

/* Steps of a model with a gate, a scale, a window or a table of rotations that the one launch does
 * not know: they can be prepared, and are then single operations. */
static void test_steps_of_odd_models(void)
{
    static struct job job, single;
    struct sb_backend backend;

    CHECK_OK(open_on(&job.model, "test/data/models/qwen3_untied_f32_sharded.draft",
                     SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    make_texts(job.model->config.vocab);
    CHECK(job.model->config.layers <= 8);
    backend = *job.model->backend;
    prepare = backend.step_prepare;
    backend.step_prepare = prepare_odd;
    job.n_rows = TEXTS;
    job.rows = all_rows;
    job.lengths = short_texts;
    job.n_steps = 2;
    single = job;
    CHECK_OK(run(&single));
    job.is_draft = 1;
    job.backend = &backend;
    for (odd = 0; odd <= ODD; odd++) {
        CHECK_OK(run(&job));
        CHECK_INT(job.launches, odd < ODD ? single.launches : 1);
    }
    specbatch_model_close(job.model);
}

/* In the f32 class a draft has the bits of its target. */
static void test_steps_of_the_f32_class(void)
{
    static struct job draft, target;

    CHECK_OK(open_on(&draft.model, "test/data/models/qwen3_untied_f32_sharded.draft",
                     SPECBATCH_COMPUTE_F32, SPECBATCH_WEIGHTS_AUTO));
    make_texts(draft.model->config.vocab);
    draft.n_rows = TEXTS;
    draft.rows = all_rows;
    draft.lengths = short_texts;
    draft.n_steps = STEPS;
    target = draft;
    draft.is_draft = 1;
    CHECK_OK(run(&draft));
    CHECK_OK(run(&target));
    CHECK_MEM(draft.ids, target.ids, sizeof draft.ids);
    CHECK_MEM(draft.x, target.x, sizeof draft.x);
    CHECK_INT(draft.launches, target.launches);
    specbatch_model_close(draft.model);
}

/* How many multiprocessors there are, and so how many blocks, changes no proposal. */
static void test_steps_on_other_devices(void)
{
    static struct job first, other;
    static const int processors[] = {1, 5, 13};

    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        const struct cudasim_machine machine = {1, 13000, 9, 0, processors[i], (size_t)1 << 30, 0};
        struct job *job = i == 0 ? &first : &other;
        cudasim_configure(&machine);
        *job = (struct job){.n_rows = 3, .is_draft = 1, .rows = all_rows + 1};
        job->lengths = long_texts;
        job->n_steps = STEPS;
        CHECK_OK(open_on(&job->model, "test/data/models/qwen3_untied_f32_sharded.draft",
                         SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
        make_texts(job->model->config.vocab);
        CHECK_OK(run(job));
        specbatch_model_close(job->model);
        CHECK_INT(job->launches, 1);
        if (i > 0) {
            CHECK_MEM(other.ids, first.ids, sizeof first.ids);
            CHECK_MEM(other.x, first.x, sizeof first.x);
        }
    }
    cudasim_configure(NULL);
}

/* Without bulk copies, with heads whose rows are copied as they lie, and others. */
static void test_steps_before_sm_90(void)
{
    static const struct cudasim_machine machine = {1, 13000, 8, 0, 6, (size_t)1 << 30, 163 << 10};

    cudasim_configure(&machine);
    check_model("test/data/models/long_qwen3_hd128_bf16", SPECBATCH_WEIGHTS_AUTO, 1);
    check_model("test/data/models/qwen2_tied_f32", SPECBATCH_WEIGHTS_AUTO, 1);
    cudasim_configure(NULL);
}

TEST_BEGIN
RUN(test_steps_of_qwen3);
RUN(test_steps_of_llama);
RUN(test_steps_with_biases);
RUN(test_steps_with_wide_heads);
RUN(test_steps_of_long_texts);
RUN(test_steps_of_two_rows);
RUN(test_steps_a_step_ahead);
RUN(test_steps_of_many_rows);
RUN(test_steps_in_several_launches);
RUN(test_steps_that_leave_logits);
RUN(test_sampled_rounds);
RUN(test_steps_that_do_not_suit);
RUN(test_steps_of_odd_models);
RUN(test_steps_of_the_f32_class);
RUN(test_steps_on_other_devices);
RUN(test_steps_before_sm_90);
TEST_END
