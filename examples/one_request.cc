// One answer: loads a model, goes on with a text, prints what comes and how long it took.
//   one_request MODEL [TEXT]
#include <markbase/engine.h>

#include <cstdio>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: one_request MODEL [TEXT]\n"), 2;

  // MODEL is a directory or a .gguf file. The options have defaults for everything.
  auto engine = markbase::Engine::load(argv[1], {});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
  std::fprintf(stderr, "%s on %s\n", engine->info().architecture.c_str(),
               engine->info().backend.c_str());

  markbase::Request request;
  request.text = argc > 2 ? argv[2] : "The capital of France is";
  request.text_is_set = true;
  request.max_tokens = 20;
  request.sampling.temperature = 0;  // greedy

  auto answer = engine->generate(request);
  if (!answer.ok()) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), 1;
  std::cout << answer->text << std::endl;
  std::fprintf(stderr, "%lld tokens, %.1f a second; it ended with \"%s\"\n",
               static_cast<long long>(answer->timings.generated_tokens),
               answer->timings.tokens_per_s, answer->finish_reason.c_str());
}
