/* Codes to names, and the thread-local last error. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[SPECBATCH_ERROR_MAX];

int32_t sb_fail(int32_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return code;
}

const char *sb_last_error(void)
{
    return last_error;
}
