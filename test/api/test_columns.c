/* How many columns a pool's caches have: by its options, or by its budget. */
#include "sbtest.h"
#include "support/small_pool.h"

/* Slots for 128 tokens and K = 5 have 160 columns, the least multiple of 8 * 4 from 134 on: 67 and
 * 33 columns are halves, 16 are too few. */
enum { SLOT = 160 };

/* Makes a pool with these options, and gives the bytes and columns that it has. */
static int32_t make_pool(const specbatch_pool_options *options, uint64_t *bytes, uint64_t *columns)
{
    specbatch_pool *pool = NULL;
    const int32_t rc = specbatch_pool_create(&pool, target, draft, options);

    if (rc == SPECBATCH_OK) {
        *bytes = stat(pool, "cache_bytes") + stat(pool, "work_bytes");
        *columns = stat(pool, "cache_columns");
    }
    specbatch_pool_free(pool);
    return rc;
}

static void test_the_budget_decides_how_many_columns(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_EXSPEC);
    uint64_t bytes, got, columns, least, wide;

    CHECK_OK(specbatch_pool_bytes(&bytes, target, draft, &options));
    CHECK_OK(make_pool(&options, &got, &columns));
    CHECK_INT(got, bytes);
    CHECK_INT(columns, 5 * SLOT); /* B and a spare, however large the window */
    options.budget_bytes = bytes;
    CHECK_OK(make_pool(&options, &got, &columns));
    CHECK_INT(columns, 5 * SLOT);
    options.budget_bytes = bytes - 1;
    CHECK_OK(make_pool(&options, &got, &columns));
    CHECK_INT(columns, 4 * SLOT);
    CHECK(got < bytes);
    options.budget_bytes = UINT64_MAX - 1;
    CHECK_OK(make_pool(&options, &wide, &columns));
    CHECK_INT(columns, 24 * SLOT);
    CHECK(wide > bytes);

    options.budget_bytes = 0;
    options.cache_columns = SLOT;
    CHECK_OK(specbatch_pool_bytes(&least, target, draft, &options));
    options.cache_columns = 0;
    options.budget_bytes = least;
    CHECK_OK(make_pool(&options, &got, &columns));
    CHECK_INT(columns, SLOT);
    CHECK_INT(got, least);
    options.budget_bytes = least - 1;
    CHECK_INT(make_pool(&options, &got, &columns), SPECBATCH_E_BUDGET);
}

static void test_columns_are_whole_slots(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    uint64_t bytes, columns, budget;

    options.cache_columns = SLOT - 1;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "cache_columns is 159, fewer than the 160 of one slot for max_len 128");
    CHECK_ERROR(specbatch_pool_bytes(&bytes, target, draft, &options), SPECBATCH_E_INVALID,
                "cache_columns");
    for (uint64_t given = SLOT; given < 3 * SLOT; given += SLOT - 1) {
        options.cache_columns = given;
        CHECK_OK(make_pool(&options, &bytes, &columns));
        CHECK_INT(columns, given / SLOT * SLOT);
    }
    options.cache_columns = UINT64_MAX; /* more than one slot a sequence would be of no use */
    CHECK_OK(make_pool(&options, &bytes, &columns));
    CHECK_INT(columns, 5 * SLOT);
    /* Both given: the columns are what they are, and the budget is only checked. */
    options.cache_columns = 2 * SLOT;
    CHECK_OK(specbatch_pool_bytes(&budget, target, draft, &options));
    options.budget_bytes = budget;
    CHECK_OK(make_pool(&options, &bytes, &columns));
    CHECK_INT(columns, 2 * SLOT);
    options.budget_bytes = budget - 1;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_BUDGET,
                "caches of 320 columns");
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_the_budget_decides_how_many_columns);
RUN(test_columns_are_whole_slots);
close_pair();
TEST_END
