/* Messages and memory of the example programs. Failures are reported in one line; without memory a
 * program ends. */
#include "support.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

const char *ex_program = "example";
static int line_is_open; /* by ex_progress */

/* What files say may be in a message, so a control character becomes a '?': it would make two lines
 * of one, or change a terminal. */
int ex_complain(const char *format, ...)
{
    char line[8192];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    ex_progress_end();
    fprintf(stderr, "%s: %s\n", ex_program, line);
    return 0;
}

void ex_progress(const char *format, ...)
{
    va_list args;

    fputc('\r', stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
    line_is_open = 1;
}

void ex_progress_end(void)
{
    if (line_is_open)
        fputc('\n', stderr);
    line_is_open = 0;
}

static void *or_exit(void *block)
{
    if (!block) {
        ex_complain("out of memory");
        exit(EX_FAILED);
    }
    return block;
}

void *ex_alloc(size_t count, size_t size)
{
    return or_exit(calloc(count ? count : 1, size));
}

void *ex_realloc(void *block, size_t count, size_t size)
{
    return or_exit(size && count > SIZE_MAX / size ? NULL : realloc(block, count * size));
}
