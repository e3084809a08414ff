// batch: many requests from JSON lines, answered together.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/repeated_key.h"
#include "cli/batch_flight.h"
#include "cli/batch_output.h"
#include "cli/batch_request.h"
#include "cli/cli.h"
#include "cli/line_reader.h"
#include "cli/model_content.h"
#include "cli/tool_runner.h"
#include "markbase/version.h"

namespace markbase::cli {
namespace {

constexpr const char* kInput =
    R"(stdin, or the file: requests, one JSON object a line. Each gives a line {"id", "line", "text", "ids",
"finish_reason", ...} as soon as it is answered.
  prompt, messages or ids    one of the three; with prompt also system, raw, special
  messages                   [{"role", "content", "reasoning_content", "tool_calls", "tool_call_id"}]
  tools, enable_thinking     tools to call (OpenAI form), thoughts first
  temperature, top_k, top_p, min_p, repetition_penalty, seed, max_tokens, stop, ignore_eos
                             as the options of run
  n, logprobs, top_logprobs  several answers, log probabilities of their tokens
  id, priority               a text or an integer (default: the number of the line); higher ones first)";

struct BatchOptions {
  SharedOptions shared;
  BatchDefaults defaults;
  std::string file;
  std::string out;
  std::string tools;
  int64_t max_sequences = EngineOptions{}.max_sequences;
  int64_t max_queue = EngineOptions{}.max_queue;
};

// "batch 120 / 1000 | 16 under way | 350.1 tokens/s", a few times a second, on a terminal alone.
class BatchProgress {
 public:
  BatchProgress(bool enabled, const std::string& file)
      : enabled_(enabled && stderr_is_terminal()), total_(enabled_ ? lines_in(file) : "") {}
  ~BatchProgress() { clear(); }

  void show(const BatchCounts& counts, int64_t skipped) {
    const auto now = std::chrono::steady_clock::now();
    if (!enabled_ || now - last_ < std::chrono::milliseconds(250)) return;
    last_ = now;
    const int64_t done = counts.answered + counts.failed + skipped;
    const double rate =
        counts.seconds > 0 ? static_cast<double>(counts.generated_tokens) / counts.seconds : 0;
    const std::string line = fmt::format("\rbatch {}{} | {} under way | {:.1f} tokens/s\x1b[K",
                                         done, total_, counts.under_way, rate);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
    shown_ = true;
  }
  void clear() {
    if (!shown_) return;
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
    shown_ = false;
  }

 private:
  // " / 1000" for a file; what comes through a pipe is not known before.
  static std::string lines_in(const std::string& file) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return {};
    Result<LineReader> reader = LineReader::open(file, LineReader::LongLines::kAreCut);
    int64_t lines = 0;
    while (reader.ok()) {
      const auto line = reader->next();
      if (!line.ok() || !*line) break;
      if ((*line)->text.find_first_not_of(" \t\r") != std::string_view::npos) ++lines;
    }
    return fmt::format(" / {}", lines);
  }

  bool enabled_;
  std::string total_;
  std::chrono::steady_clock::time_point last_;
  bool shown_ = false;
};

// `line`: valid JSON.
bool has_two_ids(std::string_view line) {
  int ids = 0;
  const auto count = [&](int depth, base::Json::parse_event_t event, base::Json& parsed) {
    if (depth == 1 && event == base::Json::parse_event_t::key && parsed == "id") ++ids;
    return true;
  };
  [[maybe_unused]] const base::Json whole =
      base::Json::parse(line.begin(), line.end(), count, /*allow_exceptions=*/false);
  return ids > 1;
}

// Reads the lines and hands them on; what is done already is left alone.
class Batch {
 public:
  // `model`: of its content.
  Batch(const BatchOptions& options, const Engine& engine, uint64_t model,
        const BatchRecord& record, BatchFlight& flight, BatchProgress& progress)
      : options_(options),
        info_(engine.info()),
        record_(record),
        flight_(flight),
        progress_(progress),
        setup_(setup_of(options.shared, engine.info(), model)),
        fault_setup_(fault_setup_of(options.defaults, engine.info())) {}

  Result<void> run(LineReader& reader) {
    const auto on_idle = [this] {
      progress_.show(flight_.counts(), skipped());
      return flight_.healthy();
    };
    for (;;) {
      MB_ASSIGN(const std::optional<LineReader::Line> line, reader.next(on_idle));
      if (!line) return flight_.finish(on_idle);
      if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
      if (line->text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      MB_TRY(take(*line, on_idle));
      on_idle();
    }
  }
  int64_t already_answered() const { return already_answered_; }
  int64_t already_failed() const { return already_failed_; }
  // Answers in the file whose id no line has had.
  int64_t foreign_answers() const {
    return static_cast<int64_t>(record_.num_answers()) - ids_in_file_;
  }

 private:
  int64_t skipped() const { return already_answered_ + already_failed_; }

  // The program, the model and what it computes with: the same request gives the same answer for
  // the same setup. Another version may compute otherwise.
  static std::string setup_of(const SharedOptions& shared, const ModelInfo& info, uint64_t model) {
    const std::string backend = info.backend.substr(0, info.backend.find(' '));
    const std::string kv = shared.kv != "auto" ? shared.kv : backend == "ref" ? "f32" : "f16";
    return fmt::format("{}|{:016x}|{}|{}|{}|{}|{}", MARKBASE_VERSION, model, info.architecture,
                       info.vocab_size, backend, kv,
                       shared.activations == "auto" ? "16" : shared.activations);
  }
  // What more decides whether a line can be answered.
  static std::string fault_setup_of(const BatchDefaults& defaults, const ModelInfo& info) {
    return fmt::format("{}|{}|{}|{}|{}|{}", info.context_tokens, defaults.system, defaults.tools,
                       defaults.raw, defaults.special, defaults.think);
  }

  Result<void> take(const LineReader::Line& line, const BatchFlight::OnIdle& on_idle) {
    BatchItem item;
    item.line = line.number;
    item.line_hash = hash_of(fmt::format("{}\n{}\n{}", setup_, fault_setup_, line.text));
    Result<void> understood = understand(line, &item);
    if (!understood.ok()) {
      // Stops the batch: nothing may take the place of an answer that is there.
      if (changed_) return understood;
      return fail(item, understood.error());
    }
    if (answered_) {
      ++already_answered_;
      return {};
    }
    if (record_.has_fault(item.line, item.line_hash)) {
      return fail(item, base::usage_error("cannot be answered, as the file of answers says"));
    }
    return flight_.submit(std::move(item), on_idle);
  }

  Result<void> fail(const BatchItem& item, const Error& error) {
    if (!record_.has_fault(item.line, item.line_hash)) {
      return flight_.fail(item.id, item.line, item.line_hash, error);
    }
    note(false, fmt::format("markbase: line {}: {}", item.line, error.message));
    ++already_failed_;
    return {};
  }

  Result<void> understand(const LineReader::Line& line, BatchItem* item) {
    answered_ = false;
    if (line.left_out_bytes > 0) {
      return base::bad_input("expected at most {} MiB, got {} bytes", kMostInputBytes >> 20,
                             line.text.size() + line.left_out_bytes);
    }
    // A message names the line once.
    Result<base::Json> json = base::parse_json(line.text, "the line");
    if (!json.ok()) return std::move(json).error();
    if (!json->is_object()) {
      return base::usage_error(
          "expected a JSON object with one of prompt, messages and ids, got {}", json->type_name());
    }
    // The library takes a NUL for the end of a text.
    if (line.text.find('\0') != line.text.npos) {
      return base::bad_input("the line: not valid JSON at byte {}: NUL", line.text.find('\0') + 1);
    }
    const Result<void> once = base::check_no_repeated_key(line.text);
    if (!once.ok() && has_two_ids(line.text)) return once;
    MB_ASSIGN(const base::Json id, batch_id(*json, line.number));
    item->id = id;
    const auto [seen, is_new] = lines_.emplace(base::dump_json(id), line.number);
    if (!is_new) {
      return base::usage_error("\"id\": {} is that of line {} already", seen->first, seen->second);
    }
    const BatchRecord::Answer* answer = record_.answer_of(id);
    if (answer != nullptr) ++ids_in_file_;
    MB_TRY(once);
    MB_ASSIGN(item->asked, batch_request(line.text, *json, options_.defaults, info_, setup_));
    if (answer == nullptr) return {};
    answered_ = true;
    // An answer that ended with the context is another one in another context, and so is one that
    // would not have had the room.
    const bool fits = answer->context_tokens != 0 ? answer->context_tokens == info_.context_tokens
                                                  : answer->room_tokens <= info_.context_tokens;
    if (answer->request == item->asked.hash && fits) return {};
    changed_ = true;
    return base::usage_error(
        "line {}: id {} is answered in {} (line {}), and the request, the model or an option has "
        "changed since. Nothing was overwritten: give another --out, or take that line out",
        line.number, base::dump_json(id), options_.out, answer->file_line);
  }

  const BatchOptions& options_;
  const ModelInfo& info_;
  const BatchRecord& record_;
  BatchFlight& flight_;
  BatchProgress& progress_;
  const std::string setup_;
  const std::string fault_setup_;
  std::unordered_map<std::string, size_t> lines_;  // by id, as JSON
  bool answered_ = false;                          // the line in hand
  bool changed_ = false;
  int64_t ids_in_file_ = 0;  // of lines so far, with an answer there
  int64_t already_answered_ = 0;
  int64_t already_failed_ = 0;
};

base::Json summary_json(const BatchCounts& counts, const Batch& batch) {
  const int64_t failed = counts.failed + batch.already_failed();
  const double rate =
      counts.seconds > 0 ? static_cast<double>(counts.generated_tokens) / counts.seconds : 0;
  return {{"requests", counts.answered + failed + batch.already_answered()},
          {"answered", counts.answered},
          {"already_answered", batch.already_answered()},
          {"failed", failed},
          {"prompt_tokens", counts.prompt_tokens},
          {"cached_tokens", counts.cached_tokens},
          {"generated_tokens", counts.generated_tokens},
          {"seconds", counts.seconds},
          {"tokens_per_s", rate}};
}

std::string summary_text(const base::Json& s) {
  std::string text = fmt::format("{} requests: {} answered", s["requests"].get<int64_t>(),
                                 s["answered"].get<int64_t>());
  if (s["already_answered"] != 0) {
    text += fmt::format(", {} before", s["already_answered"].get<int64_t>());
  }
  if (s["failed"] != 0) text += fmt::format(", {} failed", s["failed"].get<int64_t>());
  return text + fmt::format(
                    " | {} prompt tokens, {} from the prefix cache | {} tokens in {:.1f} s, "
                    "{:.1f} tokens/s",
                    s["prompt_tokens"].get<int64_t>(), s["cached_tokens"].get<int64_t>(),
                    s["generated_tokens"].get<int64_t>(), s["seconds"].get<double>(),
                    s["tokens_per_s"].get<double>());
}

Result<uint64_t> hash_of_model(const std::string& path, const SharedOptions& shared) {
  ProgressLine line(!shared.quiet);
  return model_content_hash(path, shared.threads, [&](uint64_t done, uint64_t total) {
    line.show({"reading what answers depend on", done, total});
  });
}

Result<Engine> load_batch_engine(const BatchOptions& options) {
  SharedOptions shared = options.shared;
  shared.prefix_cache = true;
  MB_ASSIGN(EngineOptions engine, engine_options(shared));
  engine.max_sequences = options.max_sequences;
  engine.max_queue = options.max_queue;
  MB_ASSIGN(const std::string path, model_path(options.shared));
  const auto line = std::make_shared<ProgressLine>(!options.shared.quiet);
  // The batch has a line of its own; single prompts are not told.
  const auto loading = std::make_shared<std::atomic<bool>>(true);
  engine.progress = [line, loading](const Progress& progress) {
    if (*loading) line->show(progress);
  };
  engine.message = message_printer(options.shared, line);
  Result<Engine> loaded = Engine::load(path, engine);
  *loading = false;
  line->clear();
  return loaded;
}

Result<int> batch(BatchOptions options) {
  if (options.shared.json && options.out.empty()) {
    return base::usage_error(
        "--json: the summary goes to stdout, where the answers are: --out FILE");
  }
  MB_TRY(check_sampling(options.defaults.sampling));
  MB_ASSIGN(const ToolRunner tools, ToolRunner::create({options.tools, ""}));
  options.defaults.tools = tools.tools();
  MB_TRY(check_output_apart("--out", options.out, options.shared, options.file));
  MB_ASSIGN(LineReader reader, LineReader::open(options.file, LineReader::LongLines::kAreCut));
  if (options.out.empty() && reader.reads(STDOUT_FILENO)) {
    return base::usage_error("stdout: expected a file that is not read, got the file of the input");
  }
  BatchRecord record;
  MB_ASSIGN(BatchOutput output, BatchOutput::open(options.out, &record));
  MB_ASSIGN(Engine engine, load_batch_engine(options));
  MB_TRY(check_defaults(options.defaults, engine.info()));
  MB_ASSIGN(const uint64_t model, hash_of_model(engine.info().path, options.shared));

  const GracefulInterrupt graceful;
  // Enough that a place that falls free is taken at once; never more than the engine takes.
  constexpr int64_t kAhead = 4;
  const int64_t most =
      std::min(kAhead * options.max_sequences, options.max_sequences + options.max_queue);
  BatchFlight flight(engine, output, static_cast<size_t>(most));
  BatchProgress progress(!options.shared.quiet, options.file);
  Batch lines(options, engine, model, record, flight, progress);
  const Result<void> done = lines.run(reader);
  flight.stop();
  progress.clear();
  const base::Json summary = summary_json(flight.counts(), lines);
  note(options.shared.quiet, summary_text(summary));
  if (!done.ok() && done.error().code == ErrorCode::kCancelled && !options.out.empty()) {
    note(options.shared.quiet, "the same command goes on where this one stopped");
  }
  if (const int64_t foreign = lines.foreign_answers(); done.ok() && foreign > 0) {
    note(options.shared.quiet,
         fmt::format("{} answer{} in {} {} of no line of this input", foreign,
                     foreign == 1 ? "" : "s", options.out, foreign == 1 ? "is" : "are"));
  }
  if (options.shared.json) MB_TRY(print(base::dump_json(summary, 2) + "\n"));
  MB_TRY(done);
  return summary["failed"] == 0 ? 0 : 1;
}

}  // namespace

Action make_batch(CLI::App& app) {
  auto options = std::make_shared<BatchOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  app.add_option("-f,--file", options->file,
                 "a file with the requests, one JSON object a line "
                 "(default: stdin)");
  app.add_option("--out", options->out,
                 "where the answers go (default: stdout); a file that has some is gone on with");
  app.add_option("--max-sequences", options->max_sequences,
                 fmt::format("answers that step together (default: {})", options->max_sequences))
      ->check(CLI::Range(int64_t{1}, kMostSequences));
  app.add_option(
         "--max-queue", options->max_queue,
         fmt::format("requests that wait in the engine at most (default: {})", options->max_queue))
      ->check(CLI::Range(int64_t{0}, kMostQueue));
  BatchDefaults& defaults = options->defaults;
  app.add_option("--system", defaults.system,
                 "a system message (this and what follows: for lines "
                 "that do not say)");
  app.add_flag("--raw", defaults.raw, "plain continuation: BOS once, no chat template");
  app.add_flag("--special", defaults.special, "with --raw: control-token spellings become tokens");
  app.add_flag("--think", defaults.think, "let the model think first");
  app.add_option("--tools", options->tools,
                 "a JSON file with the tools that the model may call (OpenAI form)");
  add_sampling_options(app, defaults.sampling);
  app.footer(kInput);
  return [options] { return batch(*options); };
}

}  // namespace markbase::cli
