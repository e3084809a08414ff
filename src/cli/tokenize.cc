// tokenize: text to ids and back.
#include <span>

#include "base/error.h"
#include "base/repeated_key.h"
#include "cli/cli.h"
#include "cli/json_lines.h"
#include "markbase/tokenizer.h"

namespace markbase::cli {
namespace {

constexpr std::string_view kEncodeKeys[] = {"text", "special", "bos"};
constexpr std::string_view kDecodeKeys[] = {"ids", "skip_special"};
constexpr const char* kInput =
    R"(stdin: the text, where neither -p nor -f is given, its last newline included; its ids begin with BOS.
With --jsonl or --decode JSON objects, one a line:
  --jsonl     text
              special         true: control-token spellings become tokens (default: as --special says)
              bos             true: BOS goes before (default: false)
  --decode    ids
              skip_special    true: control tokens are left out (default: false))";

struct TokenizeOptions {
  SharedOptions shared;
  std::optional<std::string> text;
  std::string file;
  bool special = false;
  bool jsonl = false;
  bool decode = false;
};

Result<std::string> input_text(const TokenizeOptions& options) {
  if (options.text && !options.file.empty())
    return base::usage_error("give one of -p and -f, not both");
  if (options.text) return *options.text;
  return options.file.empty() ? read_stdin() : read_file(options.file);
}

// Calls `handle` with the object of each non-empty line and prints what it returns as one line.
template <class Handle>
Result<void> for_each_object(const std::string& text, std::span<const std::string_view> keys,
                             Handle handle) {
  size_t number = 0;
  size_t begin = 0;
  const auto answer = [&](std::string_view line) -> Result<base::Json> {
    MB_ASSIGN(const base::Json object, base::parse_json(line, "input"));
    MB_TRY(check_object(object, keys));
    MB_TRY(base::check_no_repeated_key(line));
    return handle(object);
  };
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<base::Json> json = answer(line);
    if (!json.ok()) return input_error(fmt::format("line {}", number), json.error());
    MB_TRY(print(base::dump_json(*json) + "\n"));
  }
  return {};
}

Result<bool> bool_field(const base::Json& object, const char* key, bool fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_boolean())
    return base::usage_error("\"{}\": expected true or false, got {}", key, it->dump());
  return it->template get<bool>();
}

// `default_special`: what counts for a line that does not say.
Result<base::Json> encode_line(const Tokenizer& tokenizer, bool default_special,
                               const base::Json& object) {
  const auto text = object.find("text");
  if (text == object.end() || !text->is_string())
    return base::usage_error("expected a string \"text\"");
  MB_ASSIGN(const bool special, bool_field(object, "special", default_special));
  MB_ASSIGN(const bool bos, bool_field(object, "bos", false));
  base::Json answer;
  answer["ids"] = tokenizer.encode(text->get_ref<const std::string&>(), bos, special);
  return answer;
}

Result<base::Json> decode_line(const Tokenizer& tokenizer, const base::Json& object) {
  const auto ids = object.find("ids");
  if (ids == object.end() || !ids->is_array())
    return base::usage_error("expected an array \"ids\"");
  std::vector<int32_t> numbers;
  for (const base::Json& id : *ids) {
    if (!id.is_number_integer())
      return base::usage_error("\"ids\": expected integers, got {}", id.dump());
    const int64_t number = id.get<int64_t>();
    if (number < 0 || number >= tokenizer.vocab_size()) {
      return base::usage_error("\"ids\": expected 0 to {}, got {}", tokenizer.vocab_size() - 1,
                               number);
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  MB_ASSIGN(const bool skip_special, bool_field(object, "skip_special", false));
  MB_ASSIGN(std::string text, tokenizer.decode(numbers, skip_special));
  base::Json answer;
  answer["text"] = std::move(text);
  return answer;
}

Result<int> tokenize(const TokenizeOptions& options) {
  MB_TRY(check_engine_options(options.shared));
  MB_ASSIGN(const std::string path, model_path(options.shared));
  MB_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(path));
  MB_ASSIGN(const std::string text, input_text(options));
  if (options.decode) {
    MB_TRY(for_each_object(text, kDecodeKeys, [&](const base::Json& object) {
      return decode_line(tokenizer, object);
    }));
    return 0;
  }
  if (options.jsonl) {
    MB_TRY(for_each_object(text, kEncodeKeys, [&](const base::Json& object) {
      return encode_line(tokenizer, options.special, object);
    }));
    return 0;
  }
  const std::vector<int32_t> ids = tokenizer.encode(text, true, options.special);
  if (options.shared.json) {
    MB_TRY(print(base::dump_json(base::Json{{"ids", ids}}) + "\n"));
  } else {
    MB_TRY(print(fmt::format("{}\n", fmt::join(ids, " "))));
  }
  return 0;
}

}  // namespace

Action make_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired, EngineUse::kNone);
  app.add_option("-p,--prompt", options->text, "the text (default: stdin)");
  app.add_option("-f,--file", options->file, "a file with the text");
  CLI::Option* special = app.add_flag("--special", options->special,
                                      "control-token spellings become tokens (with --jsonl: where "
                                      "a line does not say)");
  CLI::Option* jsonl = app.add_flag("--jsonl", options->jsonl,
                                    "each line {\"text\", \"special\", \"bos\"} gives {\"ids\"}");
  app.add_flag("--decode", options->decode,
               "each line {\"ids\", \"skip_special\"} gives {\"text\"}")
      ->excludes(jsonl)
      ->excludes(special);
  app.footer(kInput);
  return [options] { return tokenize(*options); };
}

}  // namespace markbase::cli
