/*
 * Parts of the contents of messages, for formats that take contents apart (chat_formats.c). A part
 * borrows its bytes, which are valid UTF-8.
 */
#ifndef SB_CHAT_PARTS_H
#define SB_CHAT_PARTS_H

#include <stddef.h>

#include "chat.h"

struct sb_part {
    const char *at;
    size_t n;
};

/* A message's whole content. */
struct sb_part sb_part_of(const struct sb_turn *turn);
/* Where a word is found in a part for the first time, or NULL. */
const char *sb_part_find(struct sb_part part, const char *word);
int sb_part_begins_with(struct sb_part part, const char *word);
int sb_part_ends_with(struct sb_part part, const char *word);
/* What is behind the last such word; the whole part when there is none. */
struct sb_part sb_part_behind_last(struct sb_part part, const char *word);
struct sb_part sb_part_without_newlines_before(struct sb_part part);
struct sb_part sb_part_without_newlines_behind(struct sb_part part);
/* Without the white space around it: what str.strip() takes in Python. */
struct sb_part sb_part_stripped(struct sb_part part);

#endif
