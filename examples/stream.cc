/* What stream.c does, in C++17, with specbatch.hpp.
 *     stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...] */
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "specbatch.hpp"

namespace
{

/* What `user` of a request points to. */
struct Reader {
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
const char *end_of(const specbatch::Result &result)
{
    return result.finish() == SPECBATCH_FINISH_ERROR ? specbatch_status_name(result.status())
                                                     : specbatch::finish_name(result.finish());
}

void print_result(const specbatch::Result &result)
{
    const auto &reader = *static_cast<const Reader *>(result.user());
    const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };

    if (reader.streamed != result.text())
        throw std::logic_error(reader.name + ": the events and the result differ");
    std::cout << reader.name << "= " << on_one_line(result.text()) << '\n'
              << reader.name << ": " << end_of(result) << ", " << result.tokens().size()
              << " tokens in " << result.rounds() << " passes, " << result.accepted() << " of "
              << result.drafted() << " proposals accepted; waited " << ms(result.time_queued_ns())
              << " ms, first token after " << ms(result.time_first_token_ns()) << " ms, all after "
              << ms(result.time_total_ns()) << " ms\n";
}

void print_event(const specbatch::Event &event)
{
    auto &reader = *static_cast<Reader *>(event.user());
    reader.streamed += event.text();
    if (!event.text().empty())
        std::cout << reader.name << "> " << on_one_line(event.text()) << '\n';
    if (!std::cout.flush())
        throw std::runtime_error("stdout: cannot write");
}

void stream(const char *folder, const char *policy, std::vector<Reader> &readers)
{
    specbatch::PoolOptions options;
    options.policy = specbatch::policy_by_name(policy);
    options.flags = SPECBATCH_POOL_FIXED_K; /* also where speculation does not pay */
    specbatch::Pool pool(specbatch::Model(folder), specbatch::Draft::from_ngrams(), options);

    for (Reader &reader : readers) {
        specbatch::Request request(reader.prompt, 64);
        request.user = &reader;
        pool.submit(request);
    }
    for (const specbatch::Event &event : pool.events())
        print_event(event);
    for (const specbatch::Result &result : pool.results())
        print_result(result);
}

} /* namespace */

int main(int argc, char **argv)
try {
    std::vector<Reader> readers;

    if (argc < 5 || argc % 2 == 0) {
        std::cerr << "usage: stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]\n";
        return 2;
    }
    for (int i = 3; i < argc; i += 2)
        readers.push_back({argv[i], argv[i + 1], ""});
    std::cout << std::fixed << std::setprecision(3);
    stream(argv[1], argv[2], readers);
    return 0;
} catch (const std::exception &error) {
    std::cerr << "stream: " << error.what() << '\n';
    return 1;
}
