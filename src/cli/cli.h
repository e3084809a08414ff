// What the commands share: options, exit codes, output that never lies about where it went.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/engine.h"
#include "markbase/options.h"
#include "markbase/result.h"
#include "markbase/tools.h"

namespace markbase::cli {

// Options that commands with a model share; each takes those it can honour.
struct SharedOptions {
  std::string model;
  std::string backend = "auto";
  std::string cpu_isa = "auto";
  std::string kv = "auto";
  std::string activations = "auto";
  std::string repack_cache = "off";
  std::string memory;
  std::string mmproj;
  std::string draft;
  std::string log_level = "info";
  int threads = 0;
  int64_t context_tokens = 0;
  int64_t prefill_chunk_tokens = 512;
  bool prefix_cache = false;  // where one request goes on from another one
  // --log-level, -q and -v in one: notes and progress, warnings, explanations.
  bool quiet = false;
  bool warnings = true;
  bool verbose = false;
  bool json = false;
};

// The prompt of run, logits and trace.
struct PromptOptions {
  std::optional<std::string> text;
  std::string file;
  std::string ids;
  std::string system;
  bool raw = false;
  bool special = false;
  bool think = false;
  std::vector<std::string> image, audio, video;
};

// One command: adds its options to `app` and returns what to run after parsing (exit code 0, or an
// Error).
using Action = std::function<Result<int>()>;
struct Command {
  std::string_view name;
  std::string_view summary;
  Action (*make)(CLI::App& app);
};
Action make_run(CLI::App& app);
Action make_chat(CLI::App& app);
Action make_batch(CLI::App& app);
Action make_tokenize(CLI::App& app);
Action make_template(CLI::App& app);
Action make_parse(CLI::App& app);
Action make_logits(CLI::App& app);
Action make_trace(CLI::App& app);
Action make_inspect(CLI::App& app);
Action make_verify(CLI::App& app);
Action make_doctor(CLI::App& app);
Action make_bench(CLI::App& app);
Action make_perplexity(CLI::App& app);
Action make_synth(CLI::App& app);
Action make_list(CLI::App& app);

// --- options.cc ---
enum class ModelArgument { kRequired, kOptional, kNone };
// What a command does with an engine: nothing (it takes the options that all commands share, and
// check_engine_options refuses what no engine could honour), plans one, loads one.
enum class EngineUse { kNone, kPlan, kLoad };
void add_shared_options(CLI::App& app, SharedOptions& shared, ModelArgument model,
                        EngineUse engine = EngineUse::kLoad);
void add_prompt_options(CLI::App& app, PromptOptions& prompt);
// Checks ranges and turns them into what the engine takes; refuses what this build cannot honour.
Result<EngineOptions> engine_options(const SharedOptions& shared);
// The path of shared.model: a path, a name in the models folder, or org/name in the Hugging Face
// cache.
// For a command that makes no engine.
Result<void> check_engine_options(const SharedOptions& shared);
Result<std::string> model_path(const SharedOptions& shared);
tools::ModelPlaces model_places();
// Refuses "-" for an output: it would make a file of that name.
Result<void> check_output_name(const char* option, const std::string& output);
// The same, and an output that would take the place of a file of the model, of `input` ("" for
// none) or of the file that stdin is.
Result<void> check_output_apart(const char* option, const std::string& output,
                                const SharedOptions& shared, const std::string& input);
class ProgressLine;
// What an engine says, on stderr: what -q, -v and --log-level ask for. `line` is cleared before.
std::function<void(Severity, std::string_view)> message_printer(const SharedOptions& shared,
                                                                std::shared_ptr<ProgressLine> line);
// Loads with plan and progress on stderr.
Result<Engine> load_engine(const SharedOptions& shared);
// Comma-separated integers in [min, max]; `option` names them in the error.
Result<std::vector<int64_t>> parse_integers(const std::string& text, const std::string& option,
                                            int64_t min, int64_t max);
// Comma-separated token ids in [0, vocab_size).
Result<std::vector<int32_t>> parse_ids(const std::string& text, int64_t vocab_size);

// --- prompt.cc ---
// What can be known before a model is loaded: no two prompts, ids that are numbers, options that go
// together, a file that can be read (it is: its text takes its place).
Result<PromptOptions> checked_prompt(PromptOptions prompt);
// The request that a checked prompt stands for: --ids; or -p, -f or stdin through the template
// unless --raw.
Result<Request> prompt_request(const PromptOptions& prompt, const Engine& engine);

// --- io.cc ---
// A text, or a line of JSON, is refused when it goes on past this: a pipe need not end.
inline constexpr size_t kMostInputBytes = size_t{256} << 20;
// Errors: kBadInput (cannot be read, or longer than kMostInputBytes), kCancelled.
Result<std::string> read_file(const std::string& path);
Result<std::string> read_stdin();
// An error in the part of an input that `where` names: what would be kUsage in an option is
// kBadInput there.
Error input_error(std::string_view where, const Error& error);
// Whether a file, or a folder for files, could be made at `path`, before the work that fills it.
// Errors: kFailed.
Result<void> check_file_target(const std::string& path);
Result<void> check_folder_target(const std::string& path);
// Writes to stdout and flushes; kFailed when the pipe is closed or the disk is full.
Result<void> print(std::string_view text);
// `text` with control characters other than \n and \t as U+FFFD, and \r\n as \n: what a model or a
// file says must not drive a terminal.
std::string without_controls(std::string_view text);
// The same where `fd` is a terminal; as it is elsewhere.
std::string shown_on(int fd, std::string_view text);
// A note on stderr, unless quiet.
void note(bool quiet, std::string_view text);
bool stderr_is_terminal();
// A progress line on a terminal: "packing 120 / 246 MB (48 %)". Ends with clear(), or when all is
// done.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled) : enabled_(enabled && stderr_is_terminal()) {}
  ~ProgressLine() { clear(); }
  void show(const Progress& progress);
  void clear();

 private:
  bool enabled_;
  bool shown_ = false;
  int last_percent_ = -1;
};

// --- interrupt.cc ---
// Ctrl-C and SIGTERM: exit code 130, at once or as GracefulInterrupt says.
void install_interrupt_handler();
// While one lives, an interrupt only makes interrupted() true, and the work looks there and ends
// itself; a second one, or one at any other time, ends the program at once.
class GracefulInterrupt {
 public:
  GracefulInterrupt();
  ~GracefulInterrupt();
  GracefulInterrupt(const GracefulInterrupt&) = delete;
  GracefulInterrupt& operator=(const GracefulInterrupt&) = delete;
};
bool interrupted();
void clear_interrupt();

// --- npy.h has the .npy writer ---

}  // namespace markbase::cli
