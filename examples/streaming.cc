// An answer as it comes: through the model's chat format where it has one, thoughts to stderr and
// the answer to stdout.
//   streaming MODEL [TEXT]
#include <markbase/engine.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: streaming MODEL [TEXT]\n"), 2;
  auto engine = markbase::Engine::load(argv[1], {});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;

  const char* text = argc > 2 ? argv[2] : "Name three rivers.";
  markbase::Request request;
  if (engine->info().has_chat_format) {
    request.messages = {{.role = "system", .content = "Answer in one sentence."},
                        {.role = "user", .content = text}};
    request.enable_thinking = engine->info().has_thinking;
  } else {
    request.text = text;
    request.text_is_set = true;
  }
  request.max_tokens = 100;
  request.sampling = engine->info().sampling_defaults;  // what the model's files recommend
  request.sampling.seed = 1;                            // the same seed gives the same answer

  // Called from the engine's thread, for each token as soon as it is certain: a piece never ends
  // inside a character. Everything in the event is gone after the call. Returning false stops.
  auto answer = engine->generate(request, [](const markbase::TokenEvent& event) {
    const bool thought = event.kind == markbase::OutputPiece::Kind::kReasoning;
    std::FILE* to = thought ? stderr : stdout;
    std::fwrite(event.text.data(), 1, event.text.size(), to);
    std::fflush(to);
    return true;
  });
  if (!answer.ok()) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), 1;
  std::printf("\n");
  std::fprintf(stderr, "first token after %.1f ms, then %.1f a second\n", answer->timings.ttft_ms,
               answer->timings.tokens_per_s);
}
