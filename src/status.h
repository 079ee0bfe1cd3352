/*
 * Status codes, the last error, and the control flow of functions that can fail.
 *
 * A failure is a negative code and one line of text. The line names the place: the file, the
 * tensor, the field, the request. It is written by the function in which the failure occurs; the
 * functions above that one pass the code on unchanged. Messages name files without their directory,
 * and the function that was given a path puts that in front at the end (sb_file_fail), shortened if
 * need be: so a long path never pushes the reason out of the line.
 *
 * The line lies in a fixed buffer of each thread, so that reporting a failed allocation allocates
 * nothing. These buffers and the modes in port.c are the library's only state outside its objects.
 */
#ifndef SB_STATUS_H
#define SB_STATUS_H

#include <stdint.h>

#include "specbatch.h"

/* Writes this thread's message, cleaned (line.h), and returns `code`: return sb_fail(...). */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int32_t
sb_fail(int32_t code, const char *format, ...);

/* Puts a place in front of this thread's message, "place: message", and returns `code`. A place
 * that is too long for the line loses its beginning. */
int32_t sb_fail_in(int32_t code, const char *place);

/* This thread's message, or "" when there has been no failure. */
const char *sb_last_error(void);

/* Copies this thread's message, and puts such a copy back: for a call that succeeds although a part
 * of it has failed, such as opening a file that need not be there. */
void sb_error_copy(char copy[SPECBATCH_ERROR_MAX]);
void sb_error_restore(const char copy[SPECBATCH_ERROR_MAX]);

/*
 * A function that can fail and has something to clean up looks like this:
 *
 *     int32_t rc = SPECBATCH_OK;
 *     SB_TRY(step());                    goes to done when step fails
 *     if (bad)
 *         SB_FAIL(code, "format", ...);  goes to done with a new failure
 * done:
 *     clean up;
 *     return rc;
 *
 * No other macro of the library hides a jump.
 */
#define SB_TRY(expr)                       \
    do {                                   \
        if ((rc = (expr)) != SPECBATCH_OK) \
            goto done;                     \
    } while (0)
#define SB_FAIL(...)               \
    do {                           \
        rc = sb_fail(__VA_ARGS__); \
        goto done;                 \
    } while (0)
/* ptr = allocation. If that is NULL, fails with E_NOMEM and the message "no memory for `what`". */
#define SB_NEW(ptr, allocation, what)                               \
    do {                                                            \
        if (((ptr) = (allocation)) == NULL)                         \
            SB_FAIL(SPECBATCH_E_NOMEM, "no memory for %s", (what)); \
    } while (0)

#endif
