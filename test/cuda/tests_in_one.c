/*
 * Several test programs as one, for a GPU: kernel_tests NAME [TEST], model_tests NAME [TEST]. As
 * programs of their own, each would have all kernels or the whole library linked in, which would
 * make the bundle too large to be sent. rules.mk compiles each with its main renamed, and this file
 * with EACH(DO), which says DO(name) for every one of them.
 */
#include <stdio.h>
#include <string.h>

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
    fprintf(stderr, "usage: %s NAME [TEST], with one of these names:\n", argv[0]);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
