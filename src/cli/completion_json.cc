#include "cli/completion_json.h"

#include "base/error.h"
#include "cli/parsed_json.h"

namespace markbase::cli {
namespace {

base::Json logprob_json(const TokenLogprob& token) {
  return {{"id", token.id}, {"logprob", token.logprob}};
}

base::Json logprobs_json(const std::vector<TokenLogprobs>& tokens) {
  base::Json list = base::Json::array();
  for (const TokenLogprobs& token : tokens) {
    base::Json json = logprob_json(token.chosen);
    json["top"] = base::Json::array();
    for (const TokenLogprob& top : token.top) json["top"].push_back(logprob_json(top));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

base::Json timings_json(const Timings& timings) {
  base::Json json;
  json["load_ms"] = timings.load_ms;
  json["prompt_tokens"] = timings.prompt_tokens;
  json["cached_tokens"] = timings.cached_tokens;
  json["queue_ms"] = timings.queue_ms;
  json["prompt_ms"] = timings.prompt_ms;
  json["ttft_ms"] = timings.ttft_ms;
  json["generated_tokens"] = timings.generated_tokens;
  json["decode_ms"] = timings.decode_ms;
  json["tokens_per_s"] = timings.tokens_per_s;
  return json;
}

JsonMembers completion_members(const Completion& completion, const ToolDeclarations* tools) {
  const Completion& c = completion;
  const auto dump = [](const base::Json& json) { return base::dump_json(json); };
  JsonMembers members = {
      {"text", dump(c.text)},
      {"ids", dump(c.ids)},
      {"finish_reason", dump(c.finish_reason)},
      {"reasoning", c.reasoning.empty() ? "null" : dump(c.reasoning)},
      {"tool_calls", calls_json(c.tool_calls, tools)},
  };
  if (!c.labels.empty()) members.push_back({"labels", dump(c.labels)});
  if (!c.broken_calls.empty()) {
    members.push_back({"broken_calls", broken_calls_json(c.broken_calls)});
  }
  if (!c.logprobs.empty()) members.push_back({"logprobs", dump(logprobs_json(c.logprobs))});
  return members;
}

std::string object_json(const JsonMembers& members) {
  std::string out = "{";
  for (const JsonMember& member : members) {
    out += fmt::format("{}\"{}\":{}", out.size() > 1 ? "," : "", member.key, member.value);
  }
  return out + "}";
}

}  // namespace markbase::cli
