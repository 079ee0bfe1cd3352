/* What the example programs share besides prompts and runs: messages and memory. Examples may exit;
 * the library never does. */
#ifndef EX_SUPPORT_H
#define EX_SUPPORT_H

#include <stddef.h>

enum { EX_OK = 0, EX_DIFFERS = 1, EX_USAGE = 2, EX_FAILED = 3 }; /* exit codes of the examples */

extern const char *ex_program; /* the name messages begin with; ex_args_parse sets it */

/* One line on stderr. Returns 0, so that `return ex_complain(...)` ends a function that returns
 * success. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int ex_complain(const char *format, ...);

/* A line on stderr that the next call overwrites; what is complained of meanwhile begins a line of
 * its own. ex_progress_end leaves the last one where it is. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void ex_progress(const char *format, ...);
void ex_progress_end(void);

/* Zeroed memory, or the program ends with EX_FAILED. Free with free(). */
void *ex_alloc(size_t count, size_t size);
void *ex_realloc(void *block, size_t count, size_t size); /* the new part is not zeroed */

#endif
