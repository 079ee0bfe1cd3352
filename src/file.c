/* Opening, reading and closing files; file.h says why nothing is mapped. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

const char *sb_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int sb_file_is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int32_t sb_file_join(char path[1024], const char *dir, const char *name)
{
    int n = snprintf(path, 1024, "%s/%s", dir, name);

    if (n < 0 || n >= 1024)
        return sb_fail(SPECBATCH_E_INVALID, "%.100s: its path is longer than 1023 bytes", name);
    return SPECBATCH_OK;
}

/* Fails with the system's words for errno, or with its number where it has no words. */
static int32_t system_error(int32_t code, const struct sb_file *file, const char *what)
{
    const int error = errno;
    char why[100];

    if (strerror_r(error, why, sizeof why) != 0)
        snprintf(why, sizeof why, "error %d", error);
    return sb_fail(code, "%s: %s: %s", file->name, what, why);
}

int32_t sb_file_open(struct sb_file *file, const char *path)
{
    struct stat st;

    snprintf(file->name, sizeof file->name, "%s", sb_file_name(path));
    /* O_NONBLOCK: if there is a pipe in the file's place, opening it must not wait for a writer. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return system_error(errno == ENOENT ? SPECBATCH_E_NOT_FOUND : SPECBATCH_E_IO, file,
                            "cannot open");
    if (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        sb_file_close(file);
        return sb_fail(SPECBATCH_E_IO, "%s: not a regular file", file->name);
    }
    file->size = (uint64_t)st.st_size;
    return SPECBATCH_OK;
}

int32_t sb_file_read(const struct sb_file *file, uint64_t offset, void *into, size_t size)
{
    char *at = into;

    while (size > 0) {
        ssize_t n = pread(file->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_error(SPECBATCH_E_IO, file, "cannot read");
        if (n == 0)
            return sb_fail(SPECBATCH_E_IO, "%s: ends at byte %llu, %zu bytes short", file->name,
                           (unsigned long long)offset, size);
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return SPECBATCH_OK;
}

void sb_file_close(struct sb_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

int32_t sb_file_load(char **out, size_t *length, const struct sb_mem *mem, const char *path,
                     size_t max_bytes)
{
    struct sb_file file;
    char *text = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_open(&file, path));
    if (file.size > max_bytes)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %llu bytes, more than the %zu that are read", file.name,
                (unsigned long long)file.size, max_bytes);
    SB_NEW(text, sb_alloc_raw(mem, (size_t)file.size + 1, 1), file.name);
    SB_TRY(sb_file_read(&file, 0, text, (size_t)file.size));
    text[file.size] = '\0';
    if (length)
        *length = (size_t)file.size;
    *out = text;
    text = NULL;
done:
    sb_free(mem, text);
    sb_file_close(&file);
    return rc;
}
