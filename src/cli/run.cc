// run: one answer.
#include "base/error.h"
#include "cli/cli.h"
#include "cli/sampling.h"

namespace markbase::cli {
namespace {

struct RunOptions {
  SharedOptions shared;
  PromptOptions prompt;
  SamplingFlags sampling;
  std::string json_schema;
};

base::Json timings_json(const Timings& timings) {
  base::Json json;
  json["load_ms"] = timings.load_ms;
  json["prompt_tokens"] = timings.prompt_tokens;
  json["prompt_ms"] = timings.prompt_ms;
  json["ttft_ms"] = timings.ttft_ms;
  json["generated_tokens"] = timings.generated_tokens;
  json["decode_ms"] = timings.decode_ms;
  json["tokens_per_s"] = timings.tokens_per_s;
  return json;
}

base::Json completion_json(const Completion& completion, uint64_t seed) {
  base::Json json;
  json["text"] = completion.text;
  json["ids"] = completion.ids;
  json["prompt_ids"] = completion.prompt_ids;
  json["finish_reason"] = completion.finish_reason;
  json["reasoning"] = nullptr;
  json["tool_calls"] = base::Json::array();
  json["seed"] = seed;
  json["timings"] = timings_json(completion.timings);
  return json;
}

Result<int> run(const RunOptions& options) {
  if (!options.json_schema.empty()) {
    return base::usage_error("--json-schema: this build cannot constrain the output yet");
  }
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  MB_ASSIGN(Request request, prompt_request(options.prompt, engine, true));
  if (!options.prompt.raw && !engine.info().has_chat_template && request.ids.empty()) {
    note(options.shared.quiet,
         "this model carries no chat template: the text is continued as it is");
  }
  MB_TRY(apply_sampling(options.sampling, engine.info().sampling_defaults, request));

  const GracefulInterrupt graceful;
  Result<void> printed;
  const bool stream = !options.shared.json;
  MB_ASSIGN(Completion completion, engine.generate(request, [&](const TokenEvent& event) {
    if (stream && !event.text.empty()) printed = print(event.text);
    return printed.ok() && !interrupted();
  }));
  MB_TRY(std::move(printed));
  if (options.shared.json) {
    MB_TRY(print(base::dump_json(completion_json(completion, request.sampling.seed), 2) + "\n"));
  } else {
    MB_TRY(print("\n"));
  }
  note(options.shared.quiet, timing_line(completion.timings));
  if (request.sampling.temperature > 0 && !options.sampling.seed)
    note(options.shared.quiet, fmt::format("drawn with --seed {}", request.sampling.seed));
  if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
  return 0;
}

}  // namespace

std::string timing_line(const Timings& timings) {
  const double prompt_rate =
      timings.prompt_ms > 0
          ? 1000.0 * static_cast<double>(timings.prompt_tokens) / timings.prompt_ms
          : 0.0;
  return fmt::format(
      "prompt {} tokens, {:.0f} tokens/s | first token after {:.0f} ms | {} tokens, {:.1f} "
      "tokens/s",
      timings.prompt_tokens, prompt_rate, timings.ttft_ms, timings.generated_tokens,
      timings.tokens_per_s);
}

Action make_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_prompt_options(app, options->prompt);
  add_sampling_options(app, options->sampling);
  app.add_option("--json-schema", options->json_schema, "not in this build yet");
  return [options] { return run(*options); };
}

}  // namespace markbase::cli
