/*
 * Files that are written: they appear under their name whole or not at all, and what cannot be
 * written leaves nothing behind and says why. /dev/full stands for a full disk.
 */
#include <fcntl.h>

#include "file.h"
#include "sbtest.h"
#include "status.h"
#include "support/model_files.h"

static struct test_dir dir;
static char path[128];

static void check_content(const char *expected)
{
    size_t n = 0;
    char *text = test_read(dir.path, "new", &n);

    CHECK_STR(text, expected);
    CHECK_INT(n, strlen(expected));
    free(text);
}

static void test_a_file_appears_whole(void)
{
    struct sb_new_file file;

    for (int again = 0; again < 2; again++) {
        CHECK_OK(sb_new_file_create(&file, path));
        CHECK_OK(sb_new_file_write(&file, "first ", 6));
        CHECK_INT(test_dir_files(&dir), 1 + again);
        CHECK_OK(sb_new_file_write(&file, again ? "2" : "1", 1));
        CHECK_OK(sb_new_file_keep(&file));
        sb_new_file_drop(&file);
        CHECK_INT(test_dir_files(&dir), 1);
        check_content(again ? "first 2" : "first 1");
    }
}

static void test_what_is_dropped_leaves_the_old_file(void)
{
    struct sb_new_file file;

    test_write_text(&dir, "new", "old");
    CHECK_OK(sb_new_file_create(&file, path));
    CHECK_OK(sb_new_file_write(&file, "other", 5));
    sb_new_file_drop(&file);
    sb_new_file_drop(&file);
    CHECK_INT(test_dir_files(&dir), 1);
    check_content("old");
}

static void test_a_full_disk_is_reported(void)
{
    struct sb_new_file file;
    const int full = open("/dev/full", O_WRONLY);

    if (full < 0)
        SKIP("there is no /dev/full");
    CHECK_OK(sb_new_file_create(&file, path));
    CHECK(dup2(full, file.fd) == file.fd);
    CHECK_ERROR(sb_new_file_write(&file, "x", 1), SPECBATCH_E_IO, "new: cannot write: No space");
    sb_new_file_drop(&file);
    CHECK_INT(test_dir_files(&dir), 1);
    check_content("old");
    close(full);
}

static void test_places_where_nothing_can_be_written(void)
{
    struct sb_new_file file;
    char wrong[2000];

    snprintf(wrong, sizeof wrong, "%s/none/new", dir.path);
    CHECK_ERROR(sb_new_file_create(&file, wrong), SPECBATCH_E_IO, "new: cannot create: No such");
    CHECK_INT(file.fd, -1);
    memset(wrong, 'x', sizeof wrong - 1);
    wrong[sizeof wrong - 1] = '\0';
    CHECK_ERROR(sb_new_file_create(&file, wrong), SPECBATCH_E_INVALID, "longer than 1023 bytes");
    wrong[300] = '\0';
    CHECK_ERROR(sb_new_file_create(&file, wrong), SPECBATCH_E_IO, "too long");
    /* A directory has the name. */
    CHECK_OK(sb_new_file_create(&file, dir.path));
    CHECK_ERROR(sb_new_file_keep(&file), SPECBATCH_E_IO, "cannot give");
    CHECK(access(file.temporary, F_OK) != 0);
    CHECK_INT(test_dir_files(&dir), 1);
}

/* A path takes the place of the file's name, and stands in front of what does not begin with it. */
static void test_failures_name_the_path(void)
{
    static const char *const cases[][3] = {
        {"/nope", "nope: cannot open", "/nope: cannot open"},
        {"nope", "nope: cannot open", "nope: cannot open"},
        {"a/b.gguf", "b.gguf: truncated", "a/b.gguf: truncated"},
        {"a/b.gguf", "b.gguf.part: truncated", "a/b.gguf: b.gguf.part: truncated"},
        {"a/b", "config.json: truncated", "a/b: config.json: truncated"},
        {"a/", "no memory", "a/: no memory"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sb_fail(SPECBATCH_E_IO, "%s", cases[i][1]);
        CHECK_INT(sb_file_fail(SPECBATCH_E_IO, cases[i][0]), SPECBATCH_E_IO);
        CHECK_STR(sb_last_error(), cases[i][2]);
    }
    CHECK_OK(sb_file_fail(SPECBATCH_OK, "a"));
    CHECK_STR(sb_last_error(), cases[5][2]);
}

TEST_BEGIN
dir = test_dir_make();
snprintf(path, sizeof path, "%s/new", dir.path);
RUN(test_a_file_appears_whole);
RUN(test_what_is_dropped_leaves_the_old_file);
RUN(test_a_full_disk_is_reported);
RUN(test_places_where_nothing_can_be_written);
RUN(test_failures_name_the_path);
test_dir_remove(&dir);
TEST_END
