/* The lines that people read, in the last error and in the log: they are clean whatever went into
 * them, and never end inside a character. */
#include "line.h"
#include "log.h"
#include "sbtest.h"
#include "status.h"
#include "utf8.h"

static char logged[600];

static void keep_line(void *user, int32_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static void test_pieces_of_files_are_cleaned(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain \xc3\xa9 \xf0\x9f\x98\x80", "plain \xc3\xa9 \xf0\x9f\x98\x80"},
        {"\x1b[2J\x1b[31mred\nOK: model loaded\r\t\x7f", "?[2J?[31mred?OK: model loaded???"},
        {"c1 \xc2\x9b"
         "31m \xc2\x80 \xc2\xa0",
         "c1 ?31m ? \xc2\xa0"},
        {"latin-1 caf\xe9 tail", "latin-1 caf? tail"},
        {"half \xf0\x9f\x98 and \x80\x80", "half ? and ??"},
        {"ends in half \xe2\x82", "ends in half "},
    };
    const struct sb_log log = {keep_line, NULL};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(sb_fail(SPECBATCH_E_FORMAT, "%s", cases[i].in), SPECBATCH_E_FORMAT);
        CHECK_STR(specbatch_last_error(), cases[i].out);
        sb_log(&log, SPECBATCH_LOG_WARN, "%s", cases[i].in);
        CHECK_STR(logged, cases[i].out);
    }
}

/* Characters of every length lie across the limit, at every offset. */
static void test_the_limit_cuts_between_characters(void)
{
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    char text[1200];

    for (size_t c = 0; c < 4; c++)
        for (size_t offset = 0; offset < 4; offset++) {
            size_t n = offset;
            memset(text, '.', offset);
            while (n + c + 1 < sizeof text)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s", characters[c]);
            sb_fail(SPECBATCH_E_FORMAT, "%s", text);
            n = strlen(specbatch_last_error());
            CHECK(n <= SPECBATCH_ERROR_MAX - 1 && n + c >= SPECBATCH_ERROR_MAX - 1);
            CHECK_INT(sb_utf8_valid(specbatch_last_error(), n), n);
            CHECK_MEM(specbatch_last_error(), text, n);
        }
}

static void test_places_lose_their_beginning(void)
{
    char place[400], path[16];

    CHECK_INT(sb_fail(SPECBATCH_E_IO, "no %s", "memory"), SPECBATCH_E_IO);
    CHECK_INT(sb_fail_in(SPECBATCH_E_IO, "here"), SPECBATCH_E_IO);
    CHECK_STR(specbatch_last_error(), "here: no memory");
    for (int length = 1; length < SPECBATCH_ERROR_MAX; length++)
        for (size_t n = 1; n < sizeof place; n += 13) {
            const size_t all = n + 2 + (size_t)length;
            const char *line = specbatch_last_error();
            memset(place, 'x', n);
            place[n] = '\0';
            sb_fail(SPECBATCH_E_IO, "%0*d", length, 7);
            sb_fail_in(SPECBATCH_E_IO, place);
            CHECK_INT(strlen(line), all < SPECBATCH_ERROR_MAX ? all : SPECBATCH_ERROR_MAX - 1);
            /* The message, which ends in 7, is whole unless it left too little room for a place. */
            CHECK(line[strlen(line) - 1] == '7' || length > SPECBATCH_ERROR_MAX - 70);
        }
    sb_line_path(path, sizeof path, "123456789012345");
    CHECK_STR(path, "123456789012345");
    sb_line_path(path, sizeof path, "1234567890123456");
    CHECK_STR(path, "...567890123456");
    sb_line_path(path, sizeof path,
                 "abc\xc3\xa9"
                 "12345678901");
    CHECK_STR(path, "...12345678901");
}

static const char *name_of(int32_t index)
{
    static const char *const names[] = {"one", "two", "three"};

    return index < 3 ? names[index] : NULL;
}

static void test_names_are_listed_as_far_as_they_fit(void)
{
    static const char all[] = "one, two, three";
    char names[sizeof all + 1];

    for (size_t size = 1; size <= sizeof names; size++) {
        memset(names, '#', sizeof names);
        sb_line_names(names, size, name_of);
        CHECK_STR(names, size >= sizeof all ? all : size > 8 ? "one, two" : size > 3 ? "one" : "");
        CHECK(strlen(names) < size);
    }
}

TEST_BEGIN
RUN(test_pieces_of_files_are_cleaned);
RUN(test_the_limit_cuts_between_characters);
RUN(test_places_lose_their_beginning);
RUN(test_names_are_listed_as_far_as_they_fit);
TEST_END
