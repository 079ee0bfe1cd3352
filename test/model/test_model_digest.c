/*
 * The digest of a model: equal for equal checkpoints, whatever they are computed with, and
 * different after a change of one bit of a weight or one number of the configuration. And the
 * fingerprint, which says what they are computed with.
 */
#include "sbtest.h"

#include "support/model_files.h"

#define MODEL "test/data/models/llama_mha_f16"

static char original[40];

/* The digest of the checkpoint in a directory; "" when it does not open. */
static void digest_of(char digest[40], const char *path, int32_t compute)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;

    options.compute = compute;
    if (specbatch_model_open(&model, path, &options) != SPECBATCH_OK)
        printf("     %s\n", specbatch_last_error());
    snprintf(digest, 40, "%s", specbatch_model_digest(model));
    specbatch_model_close(model);
}

static void test_equal_models_have_equal_digests(void)
{
    const struct test_dir dir = test_dir_make();
    char digest[40];

    test_copy(&dir, MODEL, NULL);
    CHECK_INT(strspn(original, "0123456789abcdef"), 32);
    digest_of(digest, dir.path, SPECBATCH_COMPUTE_F32);
    CHECK_STR(digest, original);
    digest_of(digest, dir.path, SPECBATCH_COMPUTE_BF16);
    CHECK_STR(digest, original);
    digest_of(digest, dir.path, SPECBATCH_COMPUTE_SPLIT);
    CHECK_STR(digest, original);
    digest_of(digest, dir.path, SPECBATCH_COMPUTE_INT8);
    CHECK_STR(digest, original);
    test_dir_remove(&dir);
    CHECK_STR(specbatch_model_digest(NULL), "");
}

/* Flips the lowest bit of the byte at `from_end` of the weights. */
static void flip(const struct test_dir *dir, size_t from_end)
{
    size_t n = 0;
    char *bytes = test_read(MODEL, "model.safetensors", &n);

    CHECK(bytes && n > from_end);
    bytes[n - from_end] ^= 1;
    test_write(dir, "model.safetensors", bytes, n);
    free(bytes);
}

static void test_every_part_of_the_weights_counts(void)
{
    const struct test_dir dir = test_dir_make();
    char digest[40];

    test_copy(&dir, MODEL, NULL);
    for (size_t from_end = 2; from_end < 100000; from_end = 3 * from_end + 2) {
        flip(&dir, from_end);
        digest_of(digest, dir.path, SPECBATCH_COMPUTE_F32);
        CHECK(digest[0] && strcmp(digest, original) != 0);
    }
    test_dir_remove(&dir);
}

static void test_the_configuration_counts(void)
{
    const struct test_dir dir = test_dir_make();
    char digest[40], *config, *number;
    size_t n = 0;

    test_copy(&dir, MODEL, NULL);
    config = test_read(MODEL, "config.json", &n);
    CHECK(config != NULL);
    number = strstr(config, "\"max_position_embeddings\": ");
    CHECK(number != NULL);
    number += strlen("\"max_position_embeddings\": ");
    *number = *number == '1' ? '2' : '1';
    test_write(&dir, "config.json", config, n);
    free(config);
    digest_of(digest, dir.path, SPECBATCH_COMPUTE_F32);
    CHECK(digest[0] && strcmp(digest, original) != 0);
    test_dir_remove(&dir);
}

static void test_the_fingerprint_names_the_class(void)
{
    static const struct {
        int32_t compute;
        const char *class;
    } cases[] = {
        {SPECBATCH_COMPUTE_F32, "; cpu-f32: ascending-k fmaf,"},
        {SPECBATCH_COMPUTE_BF16, "; cpu-bf16: bf16 weights and gemm inputs, blocks of 32 k,"},
        {SPECBATCH_COMPUTE_SPLIT,
         "; cpu-split: with bf16 weights gemm inputs in 3 bf16 parts, blocks of 32 k,"},
        {SPECBATCH_COMPUTE_INT8,
         "; cpu-int8: with quantised weights gemm inputs of 8 bits, a scale for 32 k,"},
    };
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        specbatch_model *model = NULL;
        options.compute = cases[i].compute;
        CHECK_OK(specbatch_model_open(&model, MODEL, &options));
        CHECK(strstr(specbatch_model_fingerprint(model), cases[i].class) != NULL);
        specbatch_model_close(model);
    }
}

TEST_BEGIN
digest_of(original, MODEL, SPECBATCH_COMPUTE_F32);
RUN(test_equal_models_have_equal_digests);
RUN(test_every_part_of_the_weights_counts);
RUN(test_the_configuration_counts);
RUN(test_the_fingerprint_names_the_class);
TEST_END
