// parse: outputs of the model taken apart.
#include <algorithm>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/json_lines.h"
#include "cli/parsed_json.h"
#include "markbase/output.h"
#include "markbase/tokenizer.h"

namespace markbase::cli {
namespace {

constexpr std::string_view kKeys[] = {"text", "ids", "tools", "prompt_tail", "finish"};
constexpr const char* kInput =
    R"(stdin, or the file: outputs of a model, one JSON object a line. Each gives a line
{"reasoning", "content", "tool_calls", "finish_reason"}.
  text or ids    what the model wrote; among ids a spelled control token is text
  prompt_tail    what the prompt ended with: a thought may have begun there
  finish         why it ended: "stop" (the default) or "length"
  tools          a list of tools (OpenAI form): calls are checked and have "faults")";

struct ParseOptions {
  SharedOptions shared;
  std::string file;
  int64_t stream_bytes = 0;  // 0: the whole text at once
};

// The value of a key, null where it is absent or null. Errors: it has another type.
Result<const base::Json*> member(const base::Json& object, const char* key,
                                 base::Json::value_t type) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (found->type() == type) return &*found;
  return base::usage_error("\"{}\": expected {}, got {}", key, base::Json(type).type_name(),
                           base::dump_json(*found));
}

Result<std::vector<int32_t>> ids_of(const base::Json& list, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (const base::Json& id : list) {
    const bool fits = id.is_number_integer() && id >= 0 && id < vocab_size;
    if (!fits) {
      return base::usage_error("\"ids\": expected integers from 0 to {}, got {}", vocab_size - 1,
                               base::dump_json(id));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Result<std::string> finish_of(const base::Json& object) {
  MB_ASSIGN(const base::Json* finish, member(object, "finish", base::Json::value_t::string));
  if (finish == nullptr) return std::string("stop");
  if (*finish == "stop" || *finish == "length") return finish->get<std::string>();
  return base::usage_error("\"finish\": expected \"stop\" or \"length\", got {}",
                           base::dump_json(*finish));
}

Result<std::optional<ToolDeclarations>> tools_of(const base::Json& object) {
  MB_ASSIGN(const base::Json* list, member(object, "tools", base::Json::value_t::array));
  if (list == nullptr) return std::optional<ToolDeclarations>();
  Result<ToolDeclarations> tools = ToolDeclarations::from_json(base::dump_json(*list));
  if (!tools.ok()) return base::usage_error("{}", tools.error().message);
  return std::optional<ToolDeclarations>(std::move(*tools));
}

Result<std::string> parse_line(const Tokenizer& tokenizer, const ParseOptions& options,
                               const base::Json& object) {
  using Type = base::Json::value_t;
  MB_ASSIGN(const base::Json* text, member(object, "text", Type::string));
  MB_ASSIGN(const base::Json* ids, member(object, "ids", Type::array));
  MB_ASSIGN(const base::Json* tail, member(object, "prompt_tail", Type::string));
  MB_ASSIGN(const std::string finish, finish_of(object));
  MB_ASSIGN(const std::optional<ToolDeclarations> tools, tools_of(object));
  if ((text == nullptr) == (ids == nullptr)) {
    return base::usage_error("expected one of \"text\" and \"ids\", got {}",
                             text == nullptr ? "neither" : "both");
  }
  OutputParser parser(tokenizer);
  if (tail != nullptr) parser.continue_from(tail->get_ref<const std::string&>());
  if (ids != nullptr) {
    MB_ASSIGN(const std::vector<int32_t> numbers, ids_of(*ids, tokenizer.vocab_size()));
    parser.push(numbers);
  } else {
    const std::string& whole = text->get_ref<const std::string&>();
    const size_t piece = options.stream_bytes > 0 ? static_cast<size_t>(options.stream_bytes)
                                                  : std::max<size_t>(whole.size(), 1);
    for (size_t i = 0; i < whole.size(); i += piece) {
      parser.push_text(std::string_view(whole).substr(i, piece));
    }
  }
  return parsed_json(parser.finish(finish), tools ? &*tools : nullptr);
}

Result<int> parse(const ParseOptions& options) {
  MB_TRY(check_engine_options(options.shared));
  MB_ASSIGN(const std::string path, model_path(options.shared));
  MB_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(path));
  MB_TRY(for_each_json_line(options.file, kKeys, [&](const base::Json& object) {
    return parse_line(tokenizer, options, object);
  }));
  return 0;
}

}  // namespace

Action make_parse(CLI::App& app) {
  auto options = std::make_shared<ParseOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired, EngineUse::kNone);
  app.add_option("-f,--file", options->file, "a file with the lines (default: stdin)");
  app.add_option("--stream", options->stream_bytes,
                 "feed the text so many bytes at a time (the result is the same)")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()));
  app.footer(kInput);
  return [options] { return parse(*options); };
}

}  // namespace markbase::cli
