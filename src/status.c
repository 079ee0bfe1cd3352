/* The last error of each thread, and the names of status codes and of ends. */
#include "status.h"

#include <stdarg.h>
#include <string.h>

#include "line.h"

/* sb_fail_in gives a place at least so many bytes, even if the message then loses its end. */
enum { PLACE_MIN = 64 };

static _Thread_local char last_error[SPECBATCH_ERROR_MAX];

int32_t sb_fail(int32_t code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    sb_line_format(last_error, sizeof last_error, format, args);
    va_end(args);
    return code;
}

int32_t sb_fail_in(int32_t code, const char *place)
{
    char message[SPECBATCH_ERROR_MAX], path[SPECBATCH_ERROR_MAX];
    const size_t used = strlen(last_error) + strlen(": ");

    memcpy(message, last_error, sizeof message);
    sb_line_path(path, used < sizeof path - PLACE_MIN ? sizeof path - used : PLACE_MIN, place);
    return sb_fail(code, "%s: %s", path, message);
}

const char *sb_last_error(void)
{
    return last_error;
}

void sb_error_copy(char copy[SPECBATCH_ERROR_MAX])
{
    memcpy(copy, last_error, sizeof last_error);
}

void sb_error_restore(const char copy[SPECBATCH_ERROR_MAX])
{
    memcpy(last_error, copy, sizeof last_error);
}

int32_t specbatch_status_is_fatal(int32_t status)
{
    return status == SPECBATCH_E_DEVICE || status == SPECBATCH_E_INTERNAL;
}

const char *specbatch_status_name(int32_t status)
{
    static const struct {
        int32_t status;
        const char *name;
    } names[] = {
#define NAME(status) {status, #status}
        NAME(SPECBATCH_OK),
        NAME(SPECBATCH_E_INVALID),
        NAME(SPECBATCH_E_OPTIONS),
        NAME(SPECBATCH_E_TOO_LONG),
        NAME(SPECBATCH_E_TOKEN),
        NAME(SPECBATCH_E_BUFFER),
        NAME(SPECBATCH_E_NOT_FOUND),
        NAME(SPECBATCH_E_EMPTY),
        NAME(SPECBATCH_E_QUEUE_FULL),
        NAME(SPECBATCH_E_BUSY),
        NAME(SPECBATCH_E_VOCAB),
        NAME(SPECBATCH_E_NOMEM),
        NAME(SPECBATCH_E_BUDGET),
        NAME(SPECBATCH_E_IO),
        NAME(SPECBATCH_E_FORMAT),
        NAME(SPECBATCH_E_UNSUPPORTED),
        NAME(SPECBATCH_E_NO_TOKENIZER),
        NAME(SPECBATCH_E_CANCELLED),
        NAME(SPECBATCH_E_NAN),
        NAME(SPECBATCH_E_INTERRUPTED),
        NAME(SPECBATCH_E_NO_CHOICE),
        NAME(SPECBATCH_E_NO_DEVICE),
        NAME(SPECBATCH_E_DEVICE),
        NAME(SPECBATCH_E_INTERNAL),
#undef NAME
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status)
            return names[i].name;
    return "unknown status";
}

const char *specbatch_finish_name(int32_t finish)
{
    switch (finish) {
    case SPECBATCH_FINISH_EOS:
        return "eos";
    case SPECBATCH_FINISH_STOP:
        return "stop";
    case SPECBATCH_FINISH_LENGTH:
        return "length";
    case SPECBATCH_FINISH_CANCELLED:
        return "cancelled";
    case SPECBATCH_FINISH_ERROR:
        return "error";
    case SPECBATCH_FINISH_DEADLINE:
        return "deadline";
    default:
        return "unknown";
    }
}
