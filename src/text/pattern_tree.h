/*
 * A pattern as a tree: the form between its text and its instructions (pattern.h). Only the
 * pattern_*.c files see this.
 *
 * All nodes lie in one array and name each other by index. A node names its first child, and each
 * child names the next; 0, the index of a node that is not used, ends such a list. a|b+ is
 *
 *   4 ANY           child 1
 *   1   SET {a}     next 3
 *   3   REPEAT 1..  child 2
 *   2     SET {b}
 *
 * A node is made after its children, so a walk through the array meets children before parents.
 *
 * A SET names one of the tree's sets of code points, which are all different.
 */
#ifndef SB_PATTERN_TREE_H
#define SB_PATTERN_TREE_H

#include <string.h>

#include "charset.h"
#include "pattern.h"
#include "pattern_property.h"
#include "status.h"

enum sb_node_kind {
    SB_NODE_EMPTY,  /* matches no characters, anywhere */
    SB_NODE_SET,    /* matches one character of a set */
    SB_NODE_ALL,    /* matches the children, one after the other */
    SB_NODE_ANY,    /* matches the first of the children that leads to a match of the whole */
    SB_NODE_REPEAT, /* matches the child, min to max times */
    SB_NODE_LOOK,   /* matches no characters, where the child matches from here on, or up to here */
    SB_NODE_ATOMIC, /* matches what the child matches first, and never tries another way */
    SB_NODE_PLACE   /* matches no characters, at a SB_PLACE_* */
};
/* A repetition first tries to go on, first tries to stop, or goes on and gives nothing back. */
enum { SB_GREEDY, SB_LAZY, SB_POSSESSIVE };
enum { SB_LOOK_NOT = 1, SB_LOOK_BEHIND = 2 };
enum {
    SB_PLACE_TEXT_BEGIN,    /* \A */
    SB_PLACE_TEXT_END,      /* \z */
    SB_PLACE_LAST_LINE_END, /* \Z: there or before a line feed that ends the text */
    SB_PLACE_LINE_BEGIN,    /* ^: also behind every line feed but one that ends the text */
    SB_PLACE_LINE_END,      /* $: also before every line feed */
    SB_PLACE_WORD_EDGE,     /* \b */
    SB_PLACE_NO_WORD_EDGE   /* \B */
};

enum {
    SB_PATTERN_BYTES = 1 << 13,    /* of a pattern's text; known models have fewer than 1,000 */
    SB_PATTERN_SETS = 1 << 10,     /* different sets of characters in a pattern */
    SB_PATTERN_DEPTH = 64,         /* of groups in groups, and of classes in classes */
    SB_PATTERN_REPEAT = 100000,    /* the largest n of {n,m}, which is Oniguruma's own limit */
    SB_PATTERN_ENDLESS = INT32_MAX /* stands for "no limit" */
};

struct sb_node {
    enum sb_node_kind kind;
    int flag;     /* REPEAT: SB_GREEDY and so on; LOOK: SB_LOOK_*; PLACE: SB_PLACE_* */
    uint32_t set; /* SET; PLACE: the line feeds or the word characters */
    uint32_t child, next;
    int32_t min, max;    /* REPEAT: how often; SB_PATTERN_ENDLESS: no limit */
    int32_t least, most; /* how many characters it can match; SB_PATTERN_ENDLESS: no limit */
    char begins, ends;   /* the ASCII letter under (?i), in lower case, that it begins with and ends
                            with; '\0': something else */
};

struct sb_tree {
    const struct sb_mem *mem;
    struct sb_node *nodes; /* [0] is not used */
    size_t n_nodes, node_capacity;
    struct sb_charset *sets; /* all different */
    size_t n_sets, set_capacity;
};

/* Where a parser is in the text of a pattern. */
struct sb_reader {
    const char *text;
    const char *where; /* messages begin with it */
    size_t n, at;
    struct sb_tree *tree;
    struct sb_properties *properties;
    int depth; /* how many groups and classes are open */
};

/* ------------------------------------------------------------------------- pattern_tree.c */

/* Fails with E_UNSUPPORTED: `what` stands at byte `at`. */
int32_t sb_pattern_refuse(const struct sb_reader *reader, size_t at, const char *what);

/* The next byte of the pattern, 0 at its end. */
static inline char sb_reader_peek(const struct sb_reader *reader)
{
    return reader->at < reader->n ? reader->text[reader->at] : '\0';
}
/* Whether a byte is one of those in `set`. The 0 of the end is not. */
static inline int sb_among(char c, const char *set)
{
    return c && strchr(set, c) != NULL;
}
/* Steps over `text` if it comes next, and says so. */
int sb_reader_skip(struct sb_reader *reader, const char *text);
/* Steps over one character and returns it; 0 at the end of the pattern, where it stays. */
uint32_t sb_reader_char(struct sb_reader *reader);

/* Adds a node without children. */
int32_t sb_tree_node(struct sb_reader *reader, enum sb_node_kind kind, uint32_t *index);
/* Adds a node around the list of children that begins at *index, and makes *index that node. */
int32_t sb_tree_wrap(struct sb_reader *reader, enum sb_node_kind kind, int flag, uint32_t *index);
/* Computes `least` and `most` of a node from those of its children. */
void sb_tree_measure(struct sb_tree *tree, uint32_t index);
/* Moves a set into the tree, unless the tree has an equal one, and gives its index. The caller's
 * set is empty afterwards. */
int32_t sb_tree_set(struct sb_reader *reader, struct sb_charset *set, uint32_t *index);
void sb_tree_clear(struct sb_tree *tree);

/* ------------------------------------------------------------------------ pattern_class.c */

/* Reads what stands behind a backslash, if it names a set of characters (a type such as \w, or a
 * property), and adds that set. *is_set = 0: it does not, and nothing is read. */
int32_t sb_class_escape(struct sb_reader *reader, struct sb_charset *set, int in_class,
                        int *is_set);
/* Reads a single character that stands behind a backslash. in_class: \b is a character there. */
int32_t sb_class_escaped_char(struct sb_reader *reader, int in_class, uint32_t *cp);
/* Reads a class from behind its '[' to its ']', and adds its characters to an empty set. */
int32_t sb_class_brackets(struct sb_reader *reader, struct sb_charset *set, int ignore_case);
/* Adds the other cases of the ASCII letters in a set. E_UNSUPPORTED when the set has other letters
 * that have cases. */
int32_t sb_class_fold(struct sb_reader *reader, size_t at, struct sb_charset *set);

/* ---------------------------------------------------------------------- pattern_compile.c */

/* Makes a pattern of the reader's tree, which stays as it is. */
int32_t sb_pattern_compile(struct sb_pattern **out, const struct sb_reader *reader, uint32_t root);

#endif
