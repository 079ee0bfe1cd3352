/* Reads command lines by a table of options: `--name value` or `--name=value`. There are no
 * abbreviations but -h, and every number is checked. */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specbatch.h"
#include "support.h"

static void print_help(const struct ex_option *options, size_t n, const char *intro)
{
    char left[256]; /* the names of the chat formats are the longest */
    size_t i;

    printf("%s %s\n\n", ex_program, intro);
    for (i = 0; i < n; i++) {
        snprintf(left, sizeof left, "%s %s", options[i].name,
                 options[i].value ? options[i].value : "");
        printf("  %-20s %s%s\n", left, strlen(left) > 20 ? "\n                       " : "",
               options[i].help);
    }
    printf("  %-20s %s\n  %-20s %s\n", "-h, --help", "print this text", "--version",
           "print the version of the library");
}

/* The position of `text` among "a|b|c", or -1. */
static int32_t choice_index(const char *names, const char *text)
{
    const size_t length = strlen(text);
    int32_t index = 0;
    const char *p = names;

    for (;; index++) {
        const size_t span = strcspn(p, "|");
        if (span == length && strncmp(p, text, span) == 0)
            return index;
        if (p[span] == '\0')
            return -1;
        p += span + 1;
    }
}

static void print_version(void)
{
    const int32_t version = specbatch_version();

    printf("%s (libspecbatch %" PRId32 ".%" PRId32 ".%" PRId32 ")\n", ex_program, version / 10000,
           version / 100 % 100, version % 100);
}

/* "4096", "64K", "1M", "2G". */
static int take_bytes(const struct ex_option *option, const char *text)
{
    static const char units[] = "KMG";
    const size_t digits = strspn(text, "0123456789");
    const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    uint64_t bytes;

    errno = 0;
    bytes = strtoull(text, NULL, 10);
    if (digits == 0 || text[digits + (unit != NULL)] || errno || bytes > UINT64_MAX >> shift)
        return ex_complain("%s: \"%s\" is not a number of bytes; 512M is one, as are K and G",
                           option->name, text);
    bytes <<= shift;
    memcpy(option->into, &bytes, sizeof bytes);
    return 1;
}

static int take_seed(const struct ex_option *option, const char *text)
{
    uint64_t seed;
    char *end;

    errno = 0;
    seed = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-')
        return ex_complain("%s: \"%s\" is not a number in 0..%" PRIu64, option->name, text,
                           UINT64_MAX);
    memcpy(option->into, &seed, sizeof seed);
    return 1;
}

/* What numbers make sense is for the library to say. */
static int take_float(const struct ex_option *option, const char *text)
{
    float number;
    char *end;

    number = strtof(text, &end);
    if (end == text || *end)
        return ex_complain("%s: \"%s\" is not a number", option->name, text);
    memcpy(option->into, &number, sizeof number);
    return 1;
}

static int add_string(const struct ex_option *option, const char *text)
{
    struct ex_strings *strings = option->into;

    if (strings->n == EX_STRINGS_MAX)
        return ex_complain("%s is given more than %d times", option->name, EX_STRINGS_MAX);
    strings->at[strings->n++] = text;
    return 1;
}

static int take_value(const struct ex_option *option, const char *text)
{
    long number;
    int32_t parsed;
    char *end;

    if (option->kind == EX_STRING || option->kind == EX_OPERAND) {
        memcpy(option->into, &text, sizeof text);
        return 1;
    }
    if (option->kind == EX_STRINGS)
        return add_string(option, text);
    if (option->kind == EX_BYTES)
        return take_bytes(option, text);
    if (option->kind == EX_SEED)
        return take_seed(option, text);
    if (option->kind == EX_FLOAT)
        return take_float(option, text);
    if (option->kind == EX_CHOICE) {
        if ((parsed = choice_index(option->value, text)) < 0)
            return ex_complain("%s: \"%s\" is not one of %s", option->name, text, option->value);
    } else {
        errno = 0;
        number = strtol(text, &end, 10);
        if (errno || end == text || *end || number < option->low || number > option->high)
            return ex_complain("%s: \"%s\" is not a number in %ld..%ld", option->name, text,
                               (long)option->low, (long)option->high);
        parsed = (int32_t)number;
    }
    memcpy(option->into, &parsed, sizeof parsed);
    return 1;
}

/* The row of the option at `text`, whose name has `span` characters, or of the next operand, before
 * which there were n_operands; NULL if there is none. */
static const struct ex_option *find(const struct ex_option *options, size_t n, const char *text,
                                    size_t span, size_t n_operands)
{
    const int is_operand = text[0] != '-';
    size_t i;

    for (i = 0; i < n; i++)
        if (is_operand
                ? options[i].kind == EX_OPERAND && n_operands-- == 0
                : strlen(options[i].name) == span && strncmp(options[i].name, text, span) == 0)
            return &options[i];
    return NULL;
}

/* Programs may be installed under other names than those of their sources. */
static void name_program(const char *path)
{
    const char *slash = strrchr(path, '/');

    ex_program = slash ? slash + 1 : path;
}

int ex_args_parse(const struct ex_option *options, size_t n, int argc, char **argv,
                  const char *intro)
{
    const int32_t on = 1;
    size_t n_operands = 0;
    int a;

    if (argc > 0)
        name_program(argv[0]);
    for (a = 1; a < argc; a++) {
        const size_t span = strcspn(argv[a], "=");
        const struct ex_option *option = find(options, n, argv[a], span, n_operands);
        if (strcmp(argv[a], "-h") == 0 || strcmp(argv[a], "--help") == 0) {
            print_help(options, n, intro);
            return -1;
        }
        if (strcmp(argv[a], "--version") == 0) {
            print_version();
            return -1;
        }
        if (!option)
            return ex_complain("unknown option \"%s\"; --help lists them", argv[a]);
        if (option->kind == EX_SWITCH) {
            if (argv[a][span] == '=')
                return ex_complain("%s takes no value", option->name);
            memcpy(option->into, &on, sizeof on);
        } else if (option->kind == EX_OPERAND) {
            n_operands += (size_t)take_value(option, argv[a]);
        } else if (argv[a][span] == '=') {
            if (!take_value(option, argv[a] + span + 1))
                return 0;
        } else if (a + 1 == argc) {
            return ex_complain("%s needs a value", option->name);
        } else if (!take_value(option, argv[++a])) {
            return 0;
        }
    }
    return 1;
}
