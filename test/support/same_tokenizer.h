/* Whether two tokenizers make the same ids of texts, and the same texts of ids. */
#ifndef SB_TEST_SAME_TOKENIZER_H
#define SB_TEST_SAME_TOKENIZER_H

#include "text/tokenizer.h"

/* Compares them on the texts of a file of goldens, and returns how many there were; -1 when one of
 * them differs, which is printed. */
int same_tokenizer(const struct sb_tokenizer *a, const struct sb_tokenizer *b, uint32_t flags,
                   const char *goldens);

#endif
