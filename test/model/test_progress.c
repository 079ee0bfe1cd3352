/*
 * The progress of loading: it never falls, ends at the total, and may cancel the loading at any
 * call, which leaves nothing behind. A file that is cut short meanwhile is named, whichever thread
 * was reading it.
 */
#include "sbtest.h"

#include <unistd.h>

#include "support/failalloc.h"
#include "support/model_files.h"

#define MODEL "test/data/models/qwen3_untied_f32_sharded"

static struct failalloc memory;

static struct {
    int n_calls, cancel_at, wrong;
    uint64_t done, total;
} seen;

static int32_t progress(void *user, uint64_t done, uint64_t total)
{
    seen.wrong += user != &seen || done < seen.done || done > total ||
                  (seen.n_calls > 0 && total != seen.total);
    seen.done = done;
    seen.total = total;
    return ++seen.n_calls == seen.cancel_at ? 7 : 0;
}

static int32_t open_model(specbatch_model **model, int cancel_at)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    memset(&seen, 0, sizeof seen);
    seen.cancel_at = cancel_at;
    options.progress = progress;
    options.progress_user = &seen;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    return specbatch_model_open(model, MODEL, &options);
}

static void test_progress_goes_to_the_total(void)
{
    specbatch_model *model = NULL;

    CHECK_OK(open_model(&model, 0));
    CHECK(seen.n_calls > 10 && seen.wrong == 0);
    CHECK(seen.total > 100000);
    CHECK_INT(seen.done, seen.total);
    specbatch_model_close(model);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

static void test_loading_can_be_cancelled(void)
{
    specbatch_model *model = NULL;
    int n_calls;

    CHECK_OK(open_model(&model, 0));
    specbatch_model_close(model);
    model = NULL;
    n_calls = seen.n_calls;
    for (int at = 1; at <= n_calls; at++) {
        CHECK_ERROR(open_model(&model, at), SPECBATCH_E_CANCELLED, "loading was cancelled after");
        CHECK(!model && seen.n_calls == at);
        CHECK_INT(atomic_load(&memory.outstanding), 0);
    }
}

/* Cuts the file short, which `user` names, when the first bytes of it have been read. */
static int32_t cut_short(void *user, uint64_t done, uint64_t total)
{
    return done < total / 4 && truncate(user, 1 << 20) != 0;
}

/* The checkpoint is large enough to be read by whichever thread comes first. */
static void test_a_file_that_shrinks_is_named(void)
{
    const struct test_dir dir = test_dir_make();
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;
    char path[128];

    test_copy(&dir, "examples/demo/target", NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", dir.path);
    options.progress = cut_short;
    options.progress_user = path;
    CHECK_ERROR(specbatch_model_open(&model, dir.path, &options), SPECBATCH_E_IO,
                "model.safetensors: ends at byte ");
    CHECK(!model);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(test_progress_goes_to_the_total);
RUN(test_loading_can_be_cancelled);
RUN(test_a_file_that_shrinks_is_named);
TEST_END
