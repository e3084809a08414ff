// run: one answer.
#include <algorithm>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/completion_json.h"
#include "cli/parsed_json.h"
#include "cli/sampling.h"
#include "cli/turn.h"

namespace markbase::cli {
namespace {

struct RunOptions {
  SharedOptions shared;
  PromptOptions prompt;
  SamplingFlags sampling;
  ToolFlags tools;
  std::string json_schema;
};

std::string steps_json(const std::vector<ToolStep>& steps) {
  std::string out = "[";
  for (const ToolStep& step : steps) {
    if (out.size() > 1) out += ',';
    const base::Json rest = {{"result", step.result.content}, {"failed", step.result.failed}};
    out += fmt::format("{{\"call\":{},{}", call_json(step.call), base::dump_json(rest).substr(1));
  }
  return out + "]";
}

JsonMembers answer_members(const Completion& completion, const ToolDeclarations* tools) {
  JsonMembers members = completion_members(completion, tools);
  const JsonMember prompt_ids = {"prompt_ids", base::dump_json(completion.prompt_ids)};
  members.insert(members.begin() + 2, prompt_ids);  // beside the ids
  return members;
}

// The completions whose calls were run.
std::string before_json(const Turn& turn, const ToolDeclarations* tools) {
  std::vector<std::string> list;
  for (const Completion& c : turn.before) {
    JsonMembers members = answer_members(c, tools);
    members.push_back({"timings", base::dump_json(timings_json(c.timings))});
    list.push_back(object_json(members));
  }
  return fmt::format("[{}]", fmt::join(list, ","));
}

std::string turn_json(const Turn& turn, const ToolDeclarations* tools, uint64_t seed) {
  const Completion& c = turn.completion;
  JsonMembers members = answer_members(c, tools);
  if (!turn.before.empty()) {
    const std::string reasoning = turn.reasoning();
    const auto member = std::ranges::find(members, "reasoning", &JsonMember::key);
    if (!reasoning.empty()) member->value = base::dump_json(base::Json(reasoning));
    members.push_back({"earlier_turns", before_json(turn, tools)});
  }
  if (!turn.steps.empty()) members.push_back({"tool_results", steps_json(turn.steps)});
  members.push_back({"seed", base::dump_json(seed)});
  members.push_back({"timings", base::dump_json(timings_json(c.timings))});
  std::vector<std::string> lines;
  for (const JsonMember& m : members) lines.push_back(fmt::format("\"{}\": {}", m.key, m.value));
  return fmt::format("{{\n  {}\n}}\n", fmt::join(lines, ",\n  "));
}

Result<int> run(const RunOptions& options) {
  if (!options.json_schema.empty()) {
    return base::usage_error("--json-schema: this build cannot constrain the output yet");
  }
  MB_TRY(check_sampling(options.sampling));
  MB_ASSIGN(const PromptOptions prompt, checked_prompt(options.prompt));
  MB_ASSIGN(const ToolRunner tools, ToolRunner::create(options.tools));
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  MB_ASSIGN(Request request, prompt_request(prompt, engine));
  if (!options.prompt.raw && !engine.info().has_chat_template && request.ids.empty()) {
    note(options.shared.quiet,
         "this model carries no chat template: the text is continued as it is");
  }
  apply_sampling(options.sampling, engine.info().sampling_defaults, request);
  note_overrides(options.sampling, engine.info().sampling_defaults, options.shared.quiet);
  explain_sampling(request, options.shared);
  MB_TRY(offer_tools(tools, engine, request));

  const GracefulInterrupt graceful;
  AnswerPrinter printer;
  if (tools.runs_calls()) printer.hide_calls();
  AnswerPrinter* shown = options.shared.json ? nullptr : &printer;
  MB_ASSIGN(const Turn turn, run_turn(engine, request, tools, shown, options.shared.quiet));
  if (options.shared.json) {
    MB_TRY(print(turn_json(turn, tools.declarations(), request.sampling.seed)));
  } else {
    MB_TRY(printer.finish());
  }
  note_broken_calls(turn.completion, options.shared.quiet);
  note(options.shared.quiet, timing_line(turn.completion.timings));
  note_seed(options.sampling, request, options.shared.quiet);
  if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
  return 0;
}

}  // namespace

std::string timing_line(const Timings& timings) {
  std::string line = fmt::format("prompt {} tokens", timings.prompt_tokens);
  if (timings.prompt_ms > 0) {
    line += fmt::format(", {:.0f} tokens/s | first token after {:.0f} ms",
                        1000.0 * static_cast<double>(timings.prompt_tokens) / timings.prompt_ms,
                        timings.ttft_ms);
  }
  line += fmt::format(" | {} tokens", timings.generated_tokens);
  // One token has no rate: it comes with the prompt.
  if (timings.generated_tokens > 1) line += fmt::format(", {:.1f} tokens/s", timings.tokens_per_s);
  return line;
}

Action make_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_prompt_options(app, options->prompt);
  add_sampling_options(app, options->sampling);
  add_tool_options(app, options->tools);
  app.add_option("--json-schema", options->json_schema, "not in this build yet");
  return [options] { return run(*options); };
}

}  // namespace markbase::cli
