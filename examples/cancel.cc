// Three ways to end an answer early: from another thread, from the callback, and by a time limit.
//   cancel MODEL
#include <markbase/engine.h>

#include <cstdio>
#include <future>

namespace {

markbase::Request long_request() {
  markbase::Request request;
  request.text = "Once upon a time";
  request.text_is_set = true;
  request.ignore_eos = true;  // to the end of the context, if nobody stops it
  return request;
}

// What has been generated until then is the answer; finish_reason says why there is no more.
bool print(const char* how, const markbase::Result<markbase::Completion>& answer) {
  if (!answer.ok()) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), false;
  std::printf("%s: %s after %zu tokens\n", how, answer->finish_reason.c_str(), answer->ids.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: cancel MODEL\n"), 2;
  auto engine = markbase::Engine::load(argv[1], {});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;

  // cancel() may be called from any thread, and takes effect at the request's next step.
  std::promise<void> begun;
  auto handle = engine->submit(long_request(), [&, first = true](const auto&) mutable {
    if (first) begun.set_value();
    first = false;
    return true;
  });
  if (!handle.ok()) return std::fprintf(stderr, "%s\n", handle.error().message.c_str()), 1;
  begun.get_future().wait();
  (*handle)->cancel();
  bool good = print("cancel()", (*handle)->wait());

  // The callback returns false.
  good &= print("callback", engine->generate(long_request(), [count = 0](const auto&) mutable {
    return ++count < 5;
  }));

  // At most so long, waiting for a place included.
  markbase::Request limited = long_request();
  limited.timeout_ms = 20;
  good &= print("timeout", engine->generate(limited));
  return good ? 0 : 1;
}
