/*
 * The kernels' tests as one program, for a GPU: kernel_tests NAME [TEST] runs the test program of
 * that name. All of them have every kernel linked in, which as programs of their own would make the
 * bundle too large to be sent (rules.mk). Each is compiled with its main renamed.
 */
#include <stdio.h>
#include <string.h>

#define EACH(DO)             \
    DO(test_cuda_kernels)    \
    DO(test_cuda_sample)     \
    DO(test_cuda_attention)  \
    DO(test_cuda_mma)        \
    DO(test_cuda_attend_mma) \
    DO(test_cuda_quant)      \
    DO(test_cuda_mix)        \
    DO(test_cuda_draft)

#define DECLARE(name) int main_of_##name(int argc, char **argv);
EACH(DECLARE)

#define ENTRY(name) {#name, main_of_##name},
static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} tests[] = {EACH(ENTRY)};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof tests / sizeof *tests; i++)
        if (strcmp(argv[1], tests[i].name) == 0)
            return tests[i].main(argc - 1, argv + 1);
    fprintf(stderr, "usage: kernel_tests test_cuda_NAME [TEST]\n");
    return 2;
}
