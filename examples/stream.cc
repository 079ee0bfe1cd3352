/* What stream.c does, in C++17: handles free themselves, and failures are exceptions.
 *     stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...] */
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specbatch.h"

namespace
{

/* Lets a std::unique_ptr free a handle by the library's function for it. */
template <auto function>
struct FreedBy {
    template <typename T>
    void operator()(T *handle) const
    {
        function(handle);
    }
};
using Model = std::unique_ptr<specbatch_model, FreedBy<specbatch_model_close>>;
using Draft = std::unique_ptr<specbatch_draft, FreedBy<specbatch_draft_release>>;
using Pool = std::unique_ptr<specbatch_pool, FreedBy<specbatch_pool_free>>;
using Result = std::unique_ptr<specbatch_result, FreedBy<specbatch_result_free>>;

/* Copies the library's message into the exception, before another call changes it. */
void check(std::int32_t status)
{
    if (status < 0)
        throw std::runtime_error(specbatch_last_error());
}

/* Whether a function that takes things out of the pool has taken one. */
bool taken(std::int32_t status)
{
    if (status != SPECBATCH_E_EMPTY)
        check(status);
    return status == SPECBATCH_OK;
}

/* Calls a function that creates something, and takes what it created. */
template <typename Handle, typename Create, typename... Arguments>
Handle make(Create create, Arguments... arguments)
{
    typename Handle::pointer made = nullptr;
    check(create(&made, arguments...));
    return Handle(made);
}

/* What `user` of a request points to. */
struct Request {
    std::string name, prompt, streamed;
};

std::string on_one_line(std::string_view text)
{
    std::string line;
    for (char c : text)
        if (c == '\n')
            line += "\\n";
        else if (c == '\\')
            line += "\\\\";
        else
            line += c;
    return line;
}

/* How a request ended, or the name of the error that ended it. */
const char *end_of(const specbatch_result *result)
{
    const std::int32_t finish = specbatch_result_finish(result);
    return finish == SPECBATCH_FINISH_ERROR ? specbatch_status_name(specbatch_result_status(result))
                                            : specbatch_finish_name(finish);
}

void print_result(const specbatch_result *result)
{
    const auto *request = static_cast<const Request *>(specbatch_result_user(result));
    std::size_t length = 0, n_tokens = 0;
    const char *bytes = specbatch_result_text(result, &length);
    const std::string_view text(bytes, length);
    const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };

    specbatch_result_tokens(result, &n_tokens);
    if (request->streamed != text)
        throw std::logic_error(request->name + ": the events and the result differ");
    std::cout << request->name << "= " << on_one_line(text) << '\n'
              << request->name << ": " << end_of(result) << ", " << n_tokens << " tokens in "
              << specbatch_result_rounds(result) << " passes, " << specbatch_result_accepted(result)
              << " of " << specbatch_result_drafted(result) << " proposals accepted; waited "
              << ms(specbatch_result_time_queued_ns(result)) << " ms, first token after "
              << ms(specbatch_result_time_first_token_ns(result)) << " ms, all after "
              << ms(specbatch_result_time_total_ns(result)) << " ms\n";
}

/* Events are read first, as collecting a request drops those that it still has. */
void print_news(specbatch_pool *pool)
{
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_result *finished = nullptr;

    while (taken(specbatch_pool_next_event(pool, &event))) {
        auto *request = static_cast<Request *>(event.user);
        const std::string_view text(event.text, event.text_length);
        request->streamed += text;
        if (!text.empty())
            std::cout << request->name << "> " << on_one_line(text) << '\n';
    }
    while (taken(specbatch_pool_collect(pool, &finished)))
        print_result(Result(finished).get());
    if (!std::cout.flush())
        throw std::runtime_error("stdout: cannot write");
}

void stream(const char *folder, const char *policy, std::vector<Request> &requests)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    std::size_t active = 1;

    options.policy = specbatch_policy_by_name(policy);
    options.flags = SPECBATCH_POOL_FIXED_K; /* also where speculation does not pay */
    check(options.policy);
    const auto model = make<Model>(specbatch_model_open, folder, nullptr);
    const auto draft = make<Draft>(specbatch_draft_from_ngrams, nullptr);
    const auto pool = make<Pool>(specbatch_pool_create, model.get(), draft.get(), &options);

    for (Request &request : requests) {
        specbatch_request submitted = SPECBATCH_REQUEST_INIT;
        submitted.text = request.prompt.c_str();
        submitted.max_new = 64;
        submitted.user = &request;
        check(specbatch_pool_submit(pool.get(), &submitted, nullptr));
    }
    while (active) {
        check(specbatch_pool_step(pool.get(), &active));
        print_news(pool.get());
    }
}

} /* namespace */

int main(int argc, char **argv)
try {
    std::vector<Request> requests;

    if (argc < 5 || argc % 2 == 0) {
        std::cerr << "usage: stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]\n";
        return 2;
    }
    for (int i = 3; i < argc; i += 2)
        requests.push_back({argv[i], argv[i + 1], ""});
    std::cout << std::fixed << std::setprecision(3);
    stream(argv[1], argv[2], requests);
    return 0;
} catch (const std::exception &error) {
    std::cerr << "stream: " << error.what() << '\n';
    return 1;
}
