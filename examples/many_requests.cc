// Eight requests at once: they share the engine's steps and are printed in the order in which they
// end, which is not the one in which they were asked. Each answer is what it would be alone.
//   many_requests MODEL
#include <markbase/engine.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::array kTexts = {"Once upon a time", "The sea is", "Two and two make", "A cat",
                               "In the morning",   "The moon",   "Nobody knew that", "Rain"};

markbase::Request request_for(size_t i) {
  markbase::Request request;
  request.text = kTexts[i];
  request.text_is_set = true;
  request.max_tokens = static_cast<int64_t>(8 * (kTexts.size() - i));  // the last one ends first
  request.sampling.temperature = 0;
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: many_requests MODEL\n"), 2;
  markbase::EngineOptions options;
  options.max_sequences = kTexts.size();  // so many step together; more would wait
  auto engine = markbase::Engine::load(argv[1], options);
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;

  // submit() returns at once. A handle may be waited for in any thread; here each has its own.
  std::mutex printing;
  bool all_good = true;
  {
    std::vector<std::jthread> waiting;
    for (size_t i = 0; i < kTexts.size(); ++i) {
      auto handle = engine->submit(request_for(i), {});
      if (!handle.ok()) return std::fprintf(stderr, "%s\n", handle.error().message.c_str()), 1;
      waiting.emplace_back([&, i, handle = *handle] {
        const auto answer = handle->wait();
        const std::lock_guard lock(printing);
        if (answer.ok()) {
          std::cout << "[" << i << "] " << answer->ids.size() << " tokens ("
                    << answer->finish_reason << "): " << kTexts[i] << answer->text << std::endl;
        } else {
          std::fprintf(stderr, "[%zu] %s\n", i, answer.error().message.c_str());
          all_good = false;
        }
      });
    }
  }  // the threads are joined here
  return all_good ? 0 : 1;
}
