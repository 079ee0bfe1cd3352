/*
 * The shapes of rounds. A backend that records (backend.h) replays what it has recorded under a key
 * instead of what the round would issue, so two rounds with one key must issue the same operations:
 * with the same sizes, on the same addresses. Here a backend that says that it records, and is the
 * CPU's otherwise, hashes what each round issues. It replays nothing, so the tokens show that
 * padding changes none.
 *
 * It also keeps as many keys as CUDA's backend does (backend/cuda/graph.h) and drops the one unused
 * for longest. So the counts are those of a GPU: a shape's first round is issued, its second one
 * recorded, later ones are replayed.
 */
#include "sbtest.h"
#include "support/request_trace.h"
#include "support/small_pool.h"
#include "support/trace.h"

enum { KEPT = 32, MAX_KEYS = 4096, REQUESTS = 300 };

struct seen {
    uint64_t key, operations; /* a hash of what its rounds issue */
    uint64_t last_use;        /* 0: it is not kept */
    int32_t uses;             /* since it has been kept */
};

static const struct sb_backend *sound;
static struct sb_backend recorder;
static struct seen seen[MAX_KEYS];
static int n_seen, now; /* now: which of them the round has; -1: it is not recorded */
static uint64_t operations, n_rounds, n_replayed, n_recorded, n_uploads, most_uploads;
static int n_broken;

/* ------------------------------------------------------------------ hashing */

static void add_bytes(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        operations = (operations ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
}
#define ADD(value) add_bytes(&(value), sizeof(value))

static void add_pass(const struct sb_pass *pass)
{
    ADD(pass->n_tokens), ADD(pass->n_seqs), ADD(pass->n_out), ADD(pass->max_len), ADD(pass->ids);
    ADD(pass->id_at), ADD(pass->pos), ADD(pass->seq), ADD(pass->base), ADD(pass->cap);
    ADD(pass->start), ADD(pass->out), ADD(pass->n_spans);
}

static int32_t upload(struct sb_exec *exec, void *dev, const void *host, size_t bytes)
{
    ADD(dev), ADD(host), ADD(bytes);
    n_uploads++;
    return sound->upload(exec, dev, host, bytes);
}

static int32_t download(struct sb_exec *exec, void *host, const void *dev, size_t bytes)
{
    ADD(dev), ADD(host), ADD(bytes);
    return sound->download(exec, host, dev, bytes);
}

static void embed(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                  const struct sb_pass *pass)
{
    ADD(exec), ADD(x), ADD(table), ADD(scale), add_pass(pass);
    sound->embed(exec, x, table, scale, pass);
}

static void norm(struct sb_exec *exec, const struct sb_norm *args)
{
    ADD(exec), ADD(args->m), ADD(args->x), ADD(args->index);
    sound->norm(exec, args);
}

static void gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                 const float *bias, int32_t m)
{
    ADD(exec), ADD(y), ADD(x), ADD(weight), ADD(m);
    sound->gemm(exec, y, x, weight, bias, m);
}

static void attend(struct sb_exec *exec, void *y, const float *qkv,
                   const struct sb_attention *attention, const struct sb_pass *pass)
{
    ADD(exec), ADD(y), ADD(qkv), add_pass(pass);
    sound->attend(exec, y, qkv, attention, pass);
}

static void select_token(struct sb_exec *exec, const struct sb_select *args)
{
    const struct sb_samplers *samplers = args->samplers;
    const struct sb_scores *scores = args->scores;

    ADD(exec), ADD(args->m), ADD(args->stride), ADD(args->limit), ADD(args->logits), ADD(args->at);
    ADD(args->ids), ADD(args->logprob), ADD(args->margin);
    if (samplers) {
        ADD(samplers->rows), ADD(samplers->lists), ADD(samplers->masks), ADD(samplers->mask_words);
        ADD(samplers->row_stride), ADD(samplers->tokens), ADD(samplers->id_at);
        ADD(samplers->pos), ADD(samplers->out);
    }
    if (scores)
        ADD(scores->wants), ADD(scores->stride), ADD(scores->ids), ADD(scores->logprobs);
    sound->select(exec, args);
}

static void accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                   const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept)
{
    ADD(tokens), ADD(picks), ADD(n_draft), ADD(n_rows), ADD(stride), ADD(n_accept);
    sound->accept(exec, tokens, picks, n_draft, n_rows, stride, n_accept);
}

/* ---------------------------------------------------------------- recording */

/* Drops the key unused for longest, if as many are kept as may be. */
static void make_room(void)
{
    int kept = 0, oldest = -1;

    for (int i = 0; i < n_seen; i++)
        if (seen[i].last_use > 0) {
            kept++;
            oldest = oldest < 0 || seen[i].last_use < seen[oldest].last_use ? i : oldest;
        }
    if (kept == KEPT)
        seen[oldest].last_use = 0;
}

static int32_t record_begin(struct sb_exec *exec, uint64_t key, int32_t *repeats)
{
    (void)exec;
    for (now = 0; now < n_seen && seen[now].key != key; now++)
        ;
    if (now == n_seen && n_seen < MAX_KEYS)
        seen[n_seen++] = (struct seen){.key = key};
    if (seen[now].last_use == 0) {
        make_room();
        seen[now].uses = 0;
    }
    seen[now].last_use = ++n_rounds;
    n_recorded += ++seen[now].uses == 2;
    n_replayed += seen[now].uses > 2;
    operations = UINT64_C(0xcbf29ce484222325);
    n_uploads = 0;
    *repeats = 1;
    return 0;
}

static int32_t record_end(struct sb_exec *exec)
{
    (void)exec;
    n_broken += seen[now].operations != 0 && seen[now].operations != operations;
    seen[now].operations = operations;
    most_uploads = n_uploads > most_uploads ? n_uploads : most_uploads;
    return SPECBATCH_OK;
}

static void begin_recording(specbatch_model *a, specbatch_model *b)
{
    sound = a->backend;
    recorder = *sound;
    recorder.records = 1;
    recorder.upload = upload;
    recorder.download = download;
    recorder.embed = embed;
    recorder.norm = norm;
    recorder.gemm = gemm;
    recorder.attend = attend;
    recorder.select = select_token;
    recorder.accept = accept;
    recorder.record_begin = record_begin;
    recorder.record_end = record_end;
    n_seen = n_broken = 0;
    n_rounds = n_replayed = n_recorded = most_uploads = 0;
    a->backend = b->backend = &recorder;
}

static void end_recording(specbatch_model *a, specbatch_model *b)
{
    a->backend = b->backend = sound;
}

/* ------------------------------------------------------------------ traces */

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)(trace_random(state) % (uint64_t)n);
}

static int32_t open_pool(specbatch_pool **pool, specbatch_model *small, int32_t batch)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);

    options.batch = batch;
    options.draft_len = 4;
    options.max_len = 500;
    options.prefill_chunk = 64;
    return create_with_model(pool, target, small, &options);
}

/* Requests come and go as they do in a server: their number changes from round to round, and each
 * grows through several lengths. */
static void test_few_recordings_serve_changing_batches(void)
{
    specbatch_request request = small_request(1);
    specbatch_model *small;
    specbatch_pool *pool;
    uint64_t state = 5;
    size_t active = 0;

    CHECK_OK(specbatch_model_open(&small, DRAFT, NULL));
    begin_recording(target, small);
    CHECK_OK(open_pool(&pool, small, 32));
    for (int i = 0; i < REQUESTS || active;) {
        const int32_t wanted = 3 + below(&state, 28);
        for (; i < REQUESTS && (int32_t)active < wanted; i++, active++) {
            request.max_new = 20 + below(&state, 400);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        }
        CHECK_OK(specbatch_pool_step(pool, &active));
        specbatch_result_free(take(pool));
    }
    specbatch_pool_free(pool);
    end_recording(target, small);
    specbatch_model_close(small);
    printf("     %d rounds of %d shapes: %d recorded, %d replayed, %d uploads at most\n",
           (int)n_rounds, n_seen, (int)n_recorded, (int)n_replayed, (int)most_uploads);
    CHECK_INT(n_broken, 0);
    CHECK_INT(most_uploads, 1);
    CHECK(n_seen <= KEPT);
    CHECK(10 * n_replayed > 8 * n_rounds);
}

/* Random requests, which sample, want log-probabilities and alternatives, or have masks, give
 * plain's answers in rounds that are filled up. All padding tokens write into one column that
 * nobody reads, which for threads of the CPU would be a data race. */
static void test_random_requests_fit_the_recordings(void)
{
    static struct request_trace trace = {.policy = SPECBATCH_POLICY_RAGGED, .one_thread = 1};
    char why[600];

    trace.target = target;
    CHECK_OK(specbatch_model_open(&trace.small, DRAFT, NULL));
    CHECK_OK(specbatch_model_open(&trace.oracle, TARGET, NULL));
    for (uint64_t seed = 0; seed < 30; seed++) {
        CHECK_OK(request_trace_ask(&trace, seed));
        begin_recording(target, trace.small);
        if (request_trace_run(&trace, seed, why, sizeof why))
            FAIL("seed %d: %s", (int)seed, why);
        end_recording(target, trace.small);
        CHECK_INT(n_broken, 0);
    }
    printf("     %d requests, %d sampled, %d masked, %d scored\n", (int)trace.counts.requests,
           (int)trace.counts.sampled, (int)trace.counts.masked, (int)trace.counts.scored);
    CHECK(trace.counts.sampled > 0 && trace.counts.scored > 0);
    specbatch_model_close(trace.small);
    specbatch_model_close(trace.oracle);
}

TEST_BEGIN
if (open_pair() != 0) {
    printf("FAIL the pair does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_few_recordings_serve_changing_batches);
RUN(test_random_requests_fit_the_recordings);
close_pair();
TEST_END
