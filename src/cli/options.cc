#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/model_content.h"

namespace markbase::cli {
namespace {

constexpr int64_t kMaxContextTokens = int64_t{1} << 24;

// "8GiB", "512MiB", "1000000000": bytes. 0 is not a budget.
Result<uint64_t> parse_memory(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit(end);
  double factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "MiB") factor = 1024.0 * 1024.0;
  if (unit == "GiB") factor = 1024.0 * 1024.0 * 1024.0;
  if (end == text.c_str() || factor == 0 || !std::isfinite(number) || number <= 0 ||
      number * factor < 1 || number * factor > 1e18) {
    return base::usage_error("--memory: expected a size such as 8GiB, 900MiB or bytes, got '{}'",
                             text);
  }
  return static_cast<uint64_t>(number * factor);
}

Result<BackendKind> parse_backend(const std::string& name) {
  if (name == "auto") return BackendKind::kAuto;
  if (name == "cpu") return BackendKind::kCpu;
  if (name == "cuda") return BackendKind::kCuda;
  return BackendKind::kRef;
}

void add_engine_options(CLI::App& app, SharedOptions& shared) {
  app.add_option("--backend", shared.backend, "what computes (cuda: not in this build yet)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "ref"}));
  app.add_option("--threads", shared.threads, "threads (default: the cores this process may use)")
      ->check(CLI::Range(1, kMostThreads));
  app.add_option("--cpu-isa", shared.cpu_isa, "force a CPU kernel level")
      ->check(CLI::IsMember({"auto", "generic", "avx2", "avxvnni", "avx512", "vnni", "amx"}));
  app.add_option("--ctx", shared.context_tokens,
                 "context in tokens (default: the model's limit, or what fits in memory)")
      ->check(CLI::Range(int64_t{1}, kMaxContextTokens));
  app.add_option("--kv", shared.kv, "type of the key/value cache; auto: f16, for --backend ref f32")
      ->check(CLI::IsMember({"auto", "f16", "bf16", "f32", "q8"}));
  app.add_option("--prefill-chunk", shared.prefill_chunk_tokens,
                 "tokens of a prompt per step (default: 512)")
      ->check(CLI::Range(int64_t{1}, kMostPrefillChunkTokens));
  app.add_option("--memory", shared.memory,
                 "memory budget: N, NMiB or NGiB; without --ctx the context is cut to it, and what "
                 "does not fit is refused");
  app.add_option("--activations", shared.activations,
                 "16 (default); q8: 8-bit activations, less exact")
      ->check(CLI::IsMember({"auto", "16", "q8"}));
  app.add_option("--mmproj", shared.mmproj, "not in this build yet");
  app.add_option("--draft", shared.draft, "not in this build yet");
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// One meaning for -q, -v and --log-level. Of two that contradict each other the quieter one holds.
void apply_log_level(SharedOptions& shared) {
  const std::string& level = shared.log_level;
  shared.warnings = !shared.quiet && level != "error" && level != "off";
  shared.quiet = shared.quiet || !shared.warnings || level == "warning";
  shared.verbose = (shared.verbose || level == "debug") && !shared.quiet;
}

}  // namespace

void add_shared_options(CLI::App& app, SharedOptions& shared, ModelArgument model,
                        EngineUse engine) {
  if (model != ModelArgument::kNone) {
    CLI::Option* argument = app.add_option(
        "MODEL", shared.model, "a directory, a .gguf file, or a name (see `markbase list`)");
    if (model == ModelArgument::kRequired) argument->required();
  }
  const size_t num_own = app.get_options().size();
  add_engine_options(app, shared);
  if (engine == EngineUse::kLoad) {
    app.add_option("--repack-cache", shared.repack_cache,
                   "on: keep packed weights in a file beside the model, for a quicker start")
        ->check(CLI::IsMember({"on", "off"}));
  }
  app.add_option("--log-level", shared.log_level,
                 "what is said on stderr: debug (as -v), info (the default), warning (warnings "
                 "alone), error or off (as -q)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_flag("-q,--quiet", shared.quiet, "nothing on stderr but errors, whatever -v says");
  app.add_flag("-v,--verbose", shared.verbose, "explain on stderr");
  app.add_flag("--json", shared.json, "one JSON document on stdout");
  app.callback([&shared] { apply_log_level(shared); });
  // Help shows a command's own options first.
  const std::vector<CLI::Option*> options = app.get_options();
  const char* group = engine == EngineUse::kNone
                          ? "Engine (checked; nothing here depends on it) and output"
                          : "Engine and output";
  for (size_t i = num_own; i < options.size(); ++i) options[i]->group(group);
}

void add_prompt_options(CLI::App& app, PromptOptions& prompt) {
  app.add_option("-p,--prompt", prompt.text, "the text");
  app.add_option("-f,--file", prompt.file,
                 "a file with the text (- for stdin); its last newline is part of it");
  app.add_option("--ids", prompt.ids, "start from these ids: 2,5,7");
  app.add_option("--system", prompt.system, "a system message");
  app.add_flag("--raw", prompt.raw, "plain continuation: BOS once, no chat template");
  app.add_flag("--special", prompt.special, "with --raw: control-token spellings become tokens");
  app.add_flag("--think", prompt.think, "let the model think first");
  app.add_option("--image", prompt.image, "not in this build yet");
  app.add_option("--audio", prompt.audio, "not in this build yet");
  app.add_option("--video", prompt.video, "not in this build yet");
  app.footer(
      "stdin: the text, where none of -p, -f and --ids is given; its last newline is part of it.");
}

Result<EngineOptions> engine_options(const SharedOptions& shared) {
  if (!shared.mmproj.empty())
    return base::usage_error("--mmproj: this build has no picture or sound input yet");
  if (!shared.draft.empty())
    return base::usage_error("--draft: this build has no speculative decoding yet");
  EngineOptions options;
  MB_ASSIGN(options.backend, parse_backend(shared.backend));
  options.num_threads = shared.threads;
  options.cpu_isa = shared.cpu_isa;
  options.context_tokens = shared.context_tokens;
  options.kv = shared.kv;
  options.prefill_chunk_tokens = shared.prefill_chunk_tokens;
  options.activations = shared.activations;
  options.repack_cache = shared.repack_cache == "on";
  options.max_sequences = 1;  // one thing after the other
  options.prefix_cache = shared.prefix_cache;
  if (!shared.memory.empty()) {
    MB_ASSIGN(options.memory_bytes, parse_memory(shared.memory));
  }
  return options;
}

tools::ModelPlaces model_places() {
  const std::string home = environment("HOME");
  tools::ModelPlaces places;
  places.models_dir = environment("MARKBASE_MODELS");
  if (places.models_dir.empty() && !home.empty())
    places.models_dir = home + "/.local/share/markbase/models";
  std::string hf_home = environment("HF_HOME");
  if (hf_home.empty() && !home.empty()) hf_home = home + "/.cache/huggingface";
  places.hf_hub = environment("HF_HUB_CACHE");
  if (places.hf_hub.empty() && !hf_home.empty()) places.hf_hub = hf_home + "/hub";
  return places;
}

Result<void> check_engine_options(const SharedOptions& shared) {
  MB_ASSIGN(const EngineOptions options, engine_options(shared));
  return tools::check_engine(options);
}

Result<std::string> model_path(const SharedOptions& shared) {
  return tools::resolve_model(shared.model, model_places());
}

namespace {

bool is_stdin(const std::string& path) {
  struct stat file = {};
  struct stat input = {};
  return ::stat(path.c_str(), &file) == 0 && ::fstat(STDIN_FILENO, &input) == 0 &&
         file.st_dev == input.st_dev && file.st_ino == input.st_ino;
}

}  // namespace

Result<void> check_output_name(const char* option, const std::string& output) {
  if (output != "-") return {};
  return base::usage_error("{}: expected a name, got -, which does not mean stdout here", option);
}

Result<void> check_output_apart(const char* option, const std::string& output,
                                const SharedOptions& shared, const std::string& input) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  MB_TRY(check_output_name(option, output));
  const bool is_there = fs::exists(output, ignored);
  if (output.empty() || (is_there && !fs::is_regular_file(output, ignored))) return {};
  const Result<std::string> model = model_path(shared);
  // Without a model a new file takes no place; whether it can be made is told first.
  if (!model.ok()) return is_there ? Result<void>(model.error()) : Result<void>();
  const bool of_model = is_model_file(*model, output);
  const bool of_input =
      is_stdin(output) || (!input.empty() && fs::equivalent(output, input, ignored));
  if (!of_model && !of_input) return {};
  return base::usage_error("{}: expected a file that is not read, got {}, a file of the {}", option,
                           output, of_model ? "model" : "input");
}

std::function<void(Severity, std::string_view)> message_printer(
    const SharedOptions& shared, std::shared_ptr<ProgressLine> line) {
  const bool quiet = shared.quiet;
  const bool warnings = shared.warnings;
  const bool verbose = shared.verbose;
  return [=](Severity severity, std::string_view text) {
    const bool warning = severity == Severity::kWarning;
    if (severity == Severity::kDebug ? !verbose : warning ? !warnings : quiet) return;
    line->clear();
    const std::string shown = shown_on(STDERR_FILENO, text);
    note(false, warning ? fmt::format("warning: {}", shown) : shown);
  };
}

Result<Engine> load_engine(const SharedOptions& shared) {
  MB_ASSIGN(EngineOptions options, engine_options(shared));
  MB_ASSIGN(const std::string path, model_path(shared));
  auto line = std::make_shared<ProgressLine>(!shared.quiet);
  options.progress = [line](const Progress& progress) { line->show(progress); };
  options.message = message_printer(shared, line);
  Result<Engine> engine = Engine::load(path, options);
  line->clear();
  return engine;
}

Result<std::vector<int64_t>> parse_integers(const std::string& text, const std::string& option,
                                            int64_t min, int64_t max) {
  std::vector<int64_t> values;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    const std::string item = text.substr(begin, end - begin);
    char* stop = nullptr;
    errno = 0;
    const long long value = std::strtoll(item.c_str(), &stop, 10);
    if (item.empty() || *stop != '\0' || errno != 0 || value < min || value > max) {
      return base::usage_error("{}: expected integers from {} to {} separated by commas, got '{}'",
                               option, min, max, item);
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

Result<std::vector<int32_t>> parse_ids(const std::string& text, int64_t vocab_size) {
  MB_ASSIGN(const std::vector<int64_t> values, parse_integers(text, "--ids", 0, vocab_size - 1));
  return std::vector<int32_t>(values.begin(), values.end());
}

}  // namespace markbase::cli
