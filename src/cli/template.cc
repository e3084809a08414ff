// template: messages to a prompt.
#include "base/error.h"
#include "cli/cli.h"
#include "markbase/tokenizer.h"

namespace markbase::cli {
namespace {

constexpr const char* kInput =
    R"(stdin: requests, one JSON object a line, or one JSON document over any number of lines. A list stands
for its messages, as /save of chat writes it. Each request gives a line {"prompt", "ids"}.
  messages                 [{"role", "content", "reasoning_content", "tool_calls", "tool_call_id"}]
  tools                    a list of tools (OpenAI form)
  add_generation_prompt    true: the prompt ends with the beginning of an answer (default: false)
  enable_thinking          true: the model thinks first (default: false)
  preserve_thinking        true: thoughts beside tool calls of earlier turns stay (default: false)
  continue_final_message   true, or "reasoning_content": the last message is to be gone on with)";

constexpr std::string_view kBlank = " \t\r\n";

struct Line {
  std::string_view text;
  size_t number = 0;
};

// The lines that are not blank.
std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(kBlank) != line.npos) lines.push_back({line, number});
  }
  return lines;
}

// The lines of a document are no JSON alone: what the first one opens the last one closes.
bool is_one_document(const std::vector<Line>& lines) {
  return lines.size() > 1 && !base::Json::accept(lines.front().text) &&
         !base::Json::accept(lines.back().text);
}

Result<std::string> answer(const Tokenizer& tokenizer, std::string_view request) {
  std::string object;
  if (request[request.find_first_not_of(kBlank)] == '[') {
    MB_TRY(base::parse_json(request, "request"));
    object = fmt::format(R"({{"messages":{}}})", request);
    request = object;
  }
  MB_ASSIGN(const Tokenizer::Prompt prompt, tokenizer.chat_prompt(request));
  base::Json json = {{"prompt", prompt.text}, {"ids", prompt.ids}};
  if (!prompt.ignored.empty()) json["ignored"] = prompt.ignored;
  return base::dump_json(json) + "\n";
}

// `where` is for errors.
Result<void> print_answer(const Tokenizer& tokenizer, std::string_view request,
                          std::string_view where) {
  const Result<std::string> line = answer(tokenizer, request);
  if (line.ok()) return print(*line);
  return input_error(where, line.error());
}

Result<int> render(const SharedOptions& shared) {
  MB_TRY(check_engine_options(shared));
  MB_ASSIGN(const std::string path, model_path(shared));
  MB_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(path));
  MB_ASSIGN(const std::string text, read_stdin());
  const std::vector<Line> lines = lines_of(text);
  if (is_one_document(lines)) {
    MB_TRY(print_answer(tokenizer, text, "stdin, as one document"));
    return 0;
  }
  for (const Line& line : lines) {
    MB_TRY(print_answer(tokenizer, line.text, fmt::format("line {}", line.number)));
  }
  return 0;
}

}  // namespace

Action make_template(CLI::App& app) {
  auto shared = std::make_shared<SharedOptions>();
  add_shared_options(app, *shared, ModelArgument::kRequired, EngineUse::kNone);
  app.footer(kInput);
  return [shared] { return render(*shared); };
}

}  // namespace markbase::cli
