/* Formatting and cleaning lines, shortening paths, listing names; line.h says why. */
#include "line.h"

#include <stdio.h>
#include <string.h>

#include "utf8.h"

/* The control characters of Unicode: U+0000 to U+001F, and U+007F to U+009F. The latter count too:
 * a terminal that reads UTF-8 obeys U+009B as it does ESC [. */
static int is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

void sb_line_format(char *line, size_t size, const char *format, va_list args)
{
    size_t n, at = 0, kept = 0;

    if (vsnprintf(line, size, format, args) < 0)
        line[0] = '\0';
    n = strlen(line);
    while (at < n) {
        uint32_t cp = 0;
        const int step = sb_utf8_step(line + at, n - at, &cp);
        const size_t length = (size_t)(step < 0 ? -step : step);
        if (step == 0)
            break;
        if (step < 0 || is_control(cp)) {
            line[kept++] = '?';
        } else {
            memmove(line + kept, line + at, length);
            kept += length;
        }
        at += length;
    }
    line[kept] = '\0';
}

void sb_line_path(char *out, size_t size, const char *path)
{
    const size_t n = strlen(path);

    if (n < size) {
        memcpy(out, path, n + 1);
        return;
    }
    path += n - (size - sizeof "...");
    while (((unsigned char)*path & 0xc0) == 0x80) /* do not begin in the middle of a character */
        path++;
    snprintf(out, size, "...%s", path);
}

void sb_line_names(char *out, size_t size, const char *(*name_of)(int32_t index))
{
    const char *name;
    size_t at = 0;

    out[0] = '\0';
    for (int32_t i = 0; (name = name_of(i)) != NULL; i++) {
        const char *between = i > 0 ? ", " : "";
        if (strlen(between) + strlen(name) >= size - at)
            return;
        at += (size_t)snprintf(out + at, size - at, "%s%s", between, name);
    }
}
