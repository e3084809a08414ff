// markbase COMMAND MODEL [options]
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "markbase/version.h"

namespace markbase::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "one answer", make_run},
    {"chat", "a conversation in the terminal", make_chat},
    {"batch", "many requests from JSON lines, answered together", make_batch},
    {"tokenize", "text to ids and back", make_tokenize},
    {"template", "messages to a prompt, by the model's own format", make_template},
    {"parse", "outputs of a model to thoughts, answer and tool calls", make_parse},
    {"logits", "logits of every position, to a .npy file", make_logits},
    {"trace", "every named intermediate, to .npy files", make_trace},
    {"inspect", "what the file says", make_inspect},
    {"verify", "reads everything and lists every fault", make_verify},
    {"doctor", "what this machine can do", make_doctor},
    {"bench", "prefill and decode speed", make_bench},
    {"perplexity", "perplexity of a text", make_perplexity},
    {"synth", "random weights in the shape of a model, for speed and tests", make_synth},
    {"list", "models that can be named", make_list},
};
constexpr std::string_view kNotYet[] = {"quantize", "profile", "pull", "serve"};

// A whole number as people write them: CLI11 would take 010 for 8, wrap -1 and cut what is too
// large.
template <class T>
std::string whole_number_fault(const std::string& text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const size_t digits = text.starts_with('-') ? 1 : 0;
  const bool padded = text.size() > digits + 1 && text[digits] == '0';
  if (error == std::errc() && end == text.data() + text.size() && !padded) return {};
  return fmt::format("expected a whole number, got '{}'", text);
}

std::string number_fault(const std::string& text) {
  char* end = nullptr;
  (void)std::strtod(text.c_str(), &end);
  if (end == text.c_str() + text.size() && !text.empty()) return {};
  return fmt::format("expected a number, got '{}'", text);
}

// An empty value is refused everywhere but where an empty text means something.
std::string empty_fault(const std::string& text) {
  return text.empty() ? "expected a value, got nothing" : std::string();
}

using Fault = std::string (*)(const std::string&);

// Before the checks that there are: what is no number is in no range.
void check_first(CLI::Option& option, Fault fault) {
  option.transform(CLI::Validator([fault](std::string& text) { return fault(text); }, ""));
}

void add_checks(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) check_first(*option, whole_number_fault<int64_t>);
    if (type.starts_with("UINT")) check_first(*option, whole_number_fault<uint64_t>);
    if (type.starts_with("FLOAT")) check_first(*option, number_fault);
    const std::string name = option->get_name();
    if (name != "--prompt" && name != "--system") check_first(*option, empty_fault);
  }
}

int report(const Error& error) {
  if (error.code == ErrorCode::kCancelled) {
    std::fprintf(stderr, "markbase: interrupted\n");
  } else {
    const std::string message = shown_on(STDERR_FILENO, error.message);
    std::fprintf(stderr, "markbase: %s\n", message.c_str());
  }
  return static_cast<int>(error.code);
}

std::string version_text() {
  if (Result<std::string> version = tools::version_json(); version.ok()) {
    if (Result<base::Json> json = base::parse_json(*version, "version"); json.ok()) {
      return fmt::format("markbase {} ({}), {}, backends {}, CPU level {}\n", MARKBASE_VERSION,
                         MARKBASE_COMMIT, MARKBASE_COMPILER,
                         fmt::join((*json)["backends"].get<std::vector<std::string>>(), " "),
                         (*json)["cpu_level"].get<std::string>());
    }
  }
  return fmt::format("markbase {} ({}), {}\n", MARKBASE_VERSION, MARKBASE_COMMIT,
                     MARKBASE_COMPILER);
}

// What a command was given and does not take: the first option, with the nearest that it has, or
// the first word.
std::string surplus_text(const CLI::App& app) {
  const std::vector<std::string> surplus = app.remaining(/*recurse=*/true);
  const auto is_option = [](const std::string& word) {
    return word.size() > 1 && word.starts_with('-');
  };
  const auto option = std::find_if(surplus.begin(), surplus.end(), is_option);
  if (option == surplus.end()) {
    return fmt::format("not expected: '{}'", surplus.empty() ? "" : surplus.front());
  }
  const std::string name = option->substr(0, option->find('='));
  const std::vector<const CLI::App*> chosen =
      app.get_subcommands([](const CLI::App* sub) { return sub->parsed(); });
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) {
    for (const std::string& known_name : known->get_lnames()) names.push_back("--" + known_name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto goes_on = [&](std::string_view known) { return known.starts_with(name); };
  // An option that is cut short, or else the nearest.
  const std::string_view meant = std::count_if(views.begin(), views.end(), goes_on) == 1
                                     ? *std::find_if(views.begin(), views.end(), goes_on)
                                     : base::nearest(name, views);
  return fmt::format("{}: no such option{}", name,
                     meant.empty() ? std::string() : fmt::format(" (did you mean {}?)", meant));
}

// `markbase help COMMAND` is `markbase COMMAND --help`. Errors (kUsage): more than that.
Result<std::vector<std::string>> arguments(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return args;
  const bool help = args[0] == "help";
  const size_t most = help ? 2 : 1;
  if ((help || args[0] == "--version") && args.size() > most) {
    return base::usage_error("{}: not expected: '{}'", args[0], args[most]);
  }
  if (help) {
    args.erase(args.begin());
    args.push_back("--help");
  }
  return args;
}

int run(int argc, char** argv) {
  install_interrupt_handler();
  Result<std::vector<std::string>> checked = arguments(argc, argv);
  if (!checked.ok()) return report(checked.error());
  const std::vector<std::string> args = std::move(*checked);
  if (!args.empty() && args[0] == "--version") {
    Result<void> printed = print(version_text());
    return printed.ok() ? 0 : report(printed.error());
  }
  for (const std::string_view name : kNotYet) {
    if (!args.empty() && args[0] == name) {
      const char* instead =
          name == "pull" ? "; `hf download ORG/NAME` puts a model where ORG/NAME finds it" : "";
      return report(
          base::usage_error("{}: this build does not have that command yet{}", name, instead));
    }
  }

  if (!args.empty() && args[0].starts_with("-") && args[0] != "-h" && args[0] != "--help") {
    return report(base::usage_error(
        "'{}': expected a command first. `markbase help` lists what there is", args[0]));
  }
  if (!args.empty() && !args[0].starts_with("-")) {
    const bool known = std::any_of(std::begin(kCommands), std::end(kCommands),
                                   [&](const Command& command) { return command.name == args[0]; });
    if (!known) {
      return report(
          base::usage_error("'{}' is not a command. `markbase help` lists what there is", args[0]));
    }
  }

  CLI::App app{"MarkBase: an inference engine for the Gemma family", "markbase"};
  app.require_subcommand(1, 1);
  app.fallthrough(false);
  app.footer("markbase help COMMAND explains a command; markbase --version names this build.");
  Action action;
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    actions.emplace_back(sub, command.make(*sub));
    add_checks(*sub);
  }
  // CLI11 takes its arguments last first.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    Result<void> printed = print(chosen.empty() ? app.help() : chosen[0]->help("markbase"));
    return printed.ok() ? 0 : report(printed.error());
  } catch (const CLI::ExtrasError&) {
    return report(base::usage_error("{}. `markbase help {}` lists what there is", surplus_text(app),
                                    args.empty() ? "" : args[0]));
  } catch (const CLI::ParseError& error) {
    const bool in_command = !args.empty() && !args[0].starts_with("-");
    return report(base::usage_error("{}. `markbase help{}` lists what there is", error.what(),
                                    in_command ? " " + args[0] : std::string()));
  }
  for (auto& [sub, command_action] : actions) {
    if (!sub->parsed()) continue;
    Result<int> code = command_action();
    return code.ok() ? *code : report(code.error());
  }
  return report(base::usage_error("no command given"));
}

}  // namespace
}  // namespace markbase::cli

int main(int argc, char** argv) {
  // Exceptions of libraries that reach this far are faults of ours or the machine's: said, not
  // thrown on.
  try {
    return markbase::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "markbase: out of memory\n");
    return static_cast<int>(markbase::ErrorCode::kOutOfMemory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "markbase: internal error: %s\n", error.what());
    return static_cast<int>(markbase::ErrorCode::kFailed);
  }
}
