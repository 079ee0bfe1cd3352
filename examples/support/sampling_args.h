/* The options by which programs say how tokens are chosen: rows for a table of options (args.h). */
#ifndef EX_SAMPLING_ARGS_H
#define EX_SAMPLING_ARGS_H

#include "args.h"
#include "specbatch.h"

enum { EX_SAMPLING_OPTIONS = 10 };

/* Writes EX_SAMPLING_OPTIONS rows, which fill in *sampling, and initialises it. */
void ex_sampling_options(struct ex_option *rows, specbatch_sampling *sampling);
/* Copies n rows behind others, of which there are *n_rows so far. */
void ex_options_add(struct ex_option *rows, size_t *n_rows, const struct ex_option *more, size_t n);

#endif
