/* Command lines as a table: parsing, range checks and the --help text come from the same rows. */
#ifndef EX_ARGS_H
#define EX_ARGS_H

#include <stddef.h>
#include <stdint.h>

enum ex_kind {
    EX_STRING,
    EX_STRINGS, /* an option that may be given several times */
    EX_INT,
    EX_FLOAT,
    EX_BYTES,
    EX_SEED,
    EX_CHOICE,
    EX_SWITCH,
    EX_OPERAND
};

enum { EX_STRINGS_MAX = 32 };

/* The values of an option, in their order. */
struct ex_strings {
    const char *at[EX_STRINGS_MAX];
    size_t n;
};

struct ex_option {
    const char *name;  /* "--batch"; of an operand, which has no dashes, its name in the help */
    const char *value; /* "B" in the help; for EX_CHOICE the names, "f32|bf16"; NULL for a switch */
    enum ex_kind kind;
    /* const char * for EX_STRING and EX_OPERAND; struct ex_strings for EX_STRINGS; float for
     * EX_FLOAT; uint64_t for EX_SEED, any number, and for EX_BYTES, a number behind which may be a
     * K, M or G, each 1024 of the one before; else int32_t: the number, the choice's index, or 1 */
    void *into;
    int32_t low, high; /* of EX_INT */
    const char *help;
};

/* Names the program after argv[0], for its messages (ex_program) and for the help, which begins
 * with that name and the intro. 1 on success; 0 after a line on stderr; -1 after -h, --help or
 * --version has been printed. Operands are taken in the order of the table. */
int ex_args_parse(const struct ex_option *options, size_t n, int argc, char **argv,
                  const char *intro);

#endif
