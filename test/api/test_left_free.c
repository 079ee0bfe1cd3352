/*
 * A free hook that is left by longjmp while a pool makes room for pins and requests: the pool is
 * dead then, and freeing it gives back all that it has, and nothing twice; so does a text stream.
 * What the interrupted call has made is lost, which here the test itself gives back. The same of
 * the queue, and of other callbacks, is in test_callbacks.c.
 */
#include "sbtest.h"

#include <setjmp.h>

#include "support/failalloc.h"
#include "support/small_pool.h"

enum { MADE_MAX = 32 };

static struct {
    struct failalloc memory;
    jmp_buf out;
    int n_frees, leave_at; /* calls of the free hook; the one that is left; 0: none */
    struct {
        void *block;
        size_t size;
    } made[MADE_MAX]; /* what was allocated since `arm`, and not freed before that call was left */
    int n_made;
} hooks;

static void *note_alloc(void *user, size_t size, size_t align)
{
    void *block = failalloc_alloc(user, size, align);

    if (hooks.leave_at > 0 && hooks.n_made < MADE_MAX) {
        hooks.made[hooks.n_made].block = block;
        hooks.made[hooks.n_made++].size = size;
    }
    return block;
}

static void leave_free(void *user, void *block, size_t size)
{
    failalloc_free(user, block, size);
    if (++hooks.n_frees == hooks.leave_at)
        longjmp(hooks.out, 1);
}

static void arm(int leave_at)
{
    hooks.n_frees = hooks.n_made = 0;
    hooks.leave_at = leave_at;
}

static specbatch_pool *make_pool(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;

    memset(&hooks, 0, sizeof hooks);
    options.batch = 2;
    options.max_len = 64;
    options.prefix_bytes = 1 << 20;
    options.alloc = note_alloc;
    options.free = leave_free;
    options.alloc_user = &hooks.memory;
    return specbatch_pool_create(&pool, target, NULL, &options) ? NULL : pool;
}

/* The hook was left in its n-th call. lost: what that call had made is not the pool's yet. */
static void check_left(specbatch_pool *pool, int n, int lost)
{
    CHECK_INT(hooks.n_frees, n);
    hooks.leave_at = 0;
    CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_INTERNAL, "left by longjmp");
    specbatch_pool_free(pool);
    for (int i = 0; lost && i < hooks.n_made; i++)
        failalloc_free(&hooks.memory, hooks.made[i].block, hooks.made[i].size);
    CHECK(!atomic_load(&hooks.memory.broken));
    CHECK_INT(atomic_load(&hooks.memory.outstanding), 0);
}

/* The 33rd pin makes their table grow. */
static void test_while_pins_grow(void)
{
    static const int32_t ids[32];
    static specbatch_pool *pool;
    uint64_t pin;

    CHECK((pool = make_pool()) != NULL);
    for (int i = 0; i < 32; i++)
        CHECK_OK(specbatch_pool_pin(pool, ids, 32, &pin));
    arm(1);
    if (setjmp(hooks.out) == 0)
        specbatch_pool_pin(pool, ids, 32, &pin);
    check_left(pool, 1, 0);
}

/* A text stream, which has the memory functions of its model. */
static void test_while_a_text_grows(void)
{
    static specbatch_text_stream *stream;
    static specbatch_model *model;
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const char *text;
    int32_t ids[200];

    memset(&hooks, 0, sizeof hooks);
    options.alloc = note_alloc;
    options.free = leave_free;
    options.alloc_user = &hooks.memory;
    for (int32_t i = 0; i < 200; i++)
        ids[i] = 260 + i;
    CHECK_OK(specbatch_model_open(&model, "examples/demo/draft", &options));
    CHECK_OK(specbatch_text_stream_create(&stream, model, 0));
    CHECK_OK(specbatch_text_stream_push(stream, ids, 1, &text, NULL));
    arm(1);
    if (setjmp(hooks.out) == 0)
        specbatch_text_stream_push(stream, ids, 200, &text, NULL);
    CHECK_INT(hooks.n_frees, 1);
    hooks.leave_at = 0;
    specbatch_text_stream_free(stream);
    specbatch_model_close(model);
    CHECK(!atomic_load(&hooks.memory.broken));
    CHECK_INT(atomic_load(&hooks.memory.outstanding), 0);
}

/* Requests of a kind, for which rounds need memory, and for the second of them more. */
enum { SAMPLED, SCORED, MASKED, KINDS };

static int32_t allow_all(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    (void)rows;
    (void)n_rows;
    return 0;
}

static int32_t submit(specbatch_pool *pool, int kind, int second)
{
    const specbatch_mask mask = {sizeof mask, allow_all, NULL};
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_request request = small_request(40);

    sampling.temperature = 1.0f;
    sampling.presence_penalty = (float)second;
    request.sampling = kind == SAMPLED ? &sampling : NULL;
    request.top_logprobs = kind == SCORED ? 1 + second : 0;
    request.mask = kind == MASKED ? &mask : NULL;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* The memory of the first has so many parts, and the hook is left while each of them is freed. */
static void test_while_what_rounds_need_grows(void)
{
    static const int n_parts[KINDS] = {2, 2, 6};
    static specbatch_pool *pool;
    static int kind, at;

    for (kind = 0; kind < KINDS; kind++)
        for (at = 1; at <= n_parts[kind]; at++) {
            CHECK((pool = make_pool()) != NULL);
            CHECK_OK(submit(pool, kind, 0));
            arm(at);
            if (setjmp(hooks.out) == 0)
                submit(pool, kind, 1);
            check_left(pool, at, 1);
            if (sbtest_failed_now)
                return;
        }
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_while_pins_grow);
RUN(test_while_a_text_grows);
RUN(test_while_what_rounds_need_grows);
close_pair();
TEST_END
