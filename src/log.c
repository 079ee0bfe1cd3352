/* Log lines; see log.h. */
#include "log.h"

#include <stdarg.h>

#include "line.h"

void sb_log(const struct sb_log *log, int32_t level, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!log->fn)
        return;
    va_start(args, format);
    sb_line_format(line, sizeof line, format, args);
    va_end(args);
    log->fn(log->user, level, line);
}
