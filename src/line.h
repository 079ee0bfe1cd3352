/*
 * One line of text for people to read: the last error, or a line of the log.
 *
 * Such a line quotes pieces of untrusted files. A newline in a piece would forge a second line in
 * the host's log, a terminal would obey an escape sequence, and a program that decodes the line as
 * UTF-8 would fail at half a character. So every line is cleaned here when it is formatted, rather
 * than each piece wherever it is put into a message.
 */
#ifndef SB_LINE_H
#define SB_LINE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Formats a line of at most size - 1 bytes (size > 0). The result is valid UTF-8 without control
 * characters, whatever the arguments hold: '?' stands for each control character and for each
 * sequence of bytes that is no character, and a character that the limit cuts in half is left
 * out. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 0)))
#endif
void sb_line_format(char *line, size_t size, const char *format, va_list args);

/* Writes a path into `size` >= 8 bytes. Of a path that is too long only the end is kept, behind
 * "...", since the ends of paths are what tells models apart. */
void sb_line_path(char *out, size_t size, const char *path);

/* Writes the names that name_of gives for 0, 1 and so on, up to the first NULL: "plain, ragged". Of
 * names that are too long for `size` > 0 bytes the last are left out. */
void sb_line_names(char *out, size_t size, const char *(*name_of)(int32_t index));

#endif
