/*
 * A free hook that is left by longjmp while a pool makes room for pins: the pool is dead then, and
 * freeing it gives back all that it has, and nothing twice. The same of the queue, and of other
 * callbacks, is in test_callbacks.c.
 */
#include "sbtest.h"

#include <setjmp.h>

#include "support/failalloc.h"
#include "support/small_pool.h"

static struct {
    struct failalloc memory;
    jmp_buf out;
    int n_frees, leave_at; /* calls of the free hook; the one that is left; 0: none */
} hooks;

static void leave_free(void *user, void *block, size_t size)
{
    failalloc_free(user, block, size);
    if (++hooks.n_frees == hooks.leave_at)
        longjmp(hooks.out, 1);
}

static void arm(int leave_at)
{
    hooks.n_frees = 0;
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
    options.alloc = failalloc_alloc;
    options.free = leave_free;
    options.alloc_user = &hooks.memory;
    return specbatch_pool_create(&pool, target, NULL, &options) ? NULL : pool;
}

/* The hook was left in its n-th call. */
static void check_left(specbatch_pool *pool, int n)
{
    CHECK_INT(hooks.n_frees, n);
    hooks.leave_at = 0;
    CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_INTERNAL, "left by longjmp");
    specbatch_pool_free(pool);
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
    check_left(pool, 1);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_while_pins_grow);
close_pair();
TEST_END
