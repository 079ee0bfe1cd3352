/* Reads what place.h documents from the environment. */
#include "support/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *name, const char *value)
{
    const char *got = getenv(name);

    return got && strcmp(got, value) == 0;
}

const char *place_module(void)
{
    static char path[1024];
    const char *build = getenv("B");
    char here[800] = "";

    build = build ? build : "build/cpu";
    if (build[0] != '/' && !getcwd(here, sizeof here))
        here[0] = '\0';
    snprintf(path, sizeof path, "%s%s%s/libspecbatch_cuda.so", here, here[0] ? "/" : "", build);
    return path;
}

int place_is_cuda(void)
{
    return is("SB_TEST_DEVICE", "cuda");
}

int place_is_small(void)
{
    return is("SB_TEST_SIZE", "small");
}

int place_requires_device(void)
{
    return is("SB_TEST_REQUIRE_DEVICE", "1");
}

int place_has_part(uint64_t seed)
{
    const char *part = getenv("SB_TEST_PART"), *parts = getenv("SB_TEST_PARTS");
    const uint64_t n = parts ? strtoull(parts, NULL, 10) : 2;

    return !part || n < 2 || seed % n == strtoull(part, NULL, 10) % n;
}

uint64_t place_traces(uint64_t n)
{
    const char *percent = getenv("SB_TEST_TRACES");
    const uint64_t scaled = percent ? n * strtoull(percent, NULL, 10) / 100 : n;

    return scaled > 0 ? scaled : 1;
}

const char *place_checkpoint(void)
{
    return getenv("SB_TEST_MODEL");
}

int place_is_reference(void)
{
    return !is("SB_TEST_COMPUTE", "16bit");
}

specbatch_model_options place_options(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    if (place_is_cuda()) {
        options.device = SPECBATCH_DEVICE_CUDA;
        options.cuda_module = place_module();
    }
    options.compute = place_is_reference() ? SPECBATCH_COMPUTE_F32 : SPECBATCH_COMPUTE_BF16;
    return options;
}
