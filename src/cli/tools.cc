// inspect, verify, doctor, bench, perplexity, list: documents of markbase::tools, printed.
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/npy.h"
#include "cli/report.h"

namespace markbase::cli {
namespace {

Result<void> print_document(const std::string& document, bool json) {
  MB_ASSIGN(const base::Json parsed, base::parse_json(document, "report"));
  return print(json ? base::dump_json(parsed, 2) + "\n"
                    : shown_on(STDOUT_FILENO, report_text(parsed)));
}

struct InspectFlags {
  SharedOptions shared;
  bool tensors = false;
};

Result<int> inspect(const InspectFlags& flags) {
  tools::InspectOptions options;
  options.tensors = flags.tensors;
  MB_ASSIGN(options.engine, engine_options(flags.shared));
  MB_ASSIGN(const std::string path, model_path(flags.shared));
  MB_ASSIGN(const std::string document, tools::inspect_json(path, options));
  MB_TRY(print_document(document, flags.shared.json));
  return 0;
}

Result<int> verify(const SharedOptions& shared) {
  MB_TRY(check_engine_options(shared));
  MB_ASSIGN(const std::string path, model_path(shared));
  ProgressLine line(!shared.quiet);
  MB_ASSIGN(const std::string document,
            tools::verify_json(path, [&](const Progress& p) { line.show(p); }));
  line.clear();
  MB_ASSIGN(base::Json parsed, base::parse_json(document, "report"));
  const size_t num_faults = parsed["faults"].size();
  if (num_faults == 0 && !shared.json) parsed["faults"] = "no fault found";
  MB_TRY(print(shared.json ? base::dump_json(parsed, 2) + "\n"
                           : shown_on(STDOUT_FILENO, report_text(parsed))));
  if (num_faults == 0) return 0;
  return base::bad_input("{}: {} fault{} found", path, num_faults, num_faults == 1 ? "" : "s");
}

Result<int> doctor(const SharedOptions& shared) {
  MB_ASSIGN(const EngineOptions options, engine_options(shared));
  std::string path;
  if (!shared.model.empty()) {
    MB_ASSIGN(path, model_path(shared));
  }
  MB_ASSIGN(const std::string document, tools::doctor_json(path, options));
  MB_TRY(print_document(document, shared.json));
  return 0;
}

struct BenchFlags {
  SharedOptions shared;
  std::optional<std::string> prefill;  // none: 512, or what the context holds
  int64_t decode_tokens = 128;
  std::string depths = "0";
  std::string batches = "1";
  int repetitions = 5;
  int64_t arrivals = 0;
  std::string rate = "closed";
  uint64_t seed = 0;
};

// Requests a second; 0 for "closed".
Result<double> parse_rate(const std::string& text) {
  if (text == "closed") return 0.0;
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0' && std::isfinite(rate) && rate > 0) return rate;
  return base::usage_error(
      "--rate: expected requests a second, a number above 0, or closed, got "
      "'{}'",
      text);
}

Result<int> bench(const BenchFlags& flags) {
  constexpr int64_t kMaxTokens = int64_t{1} << 24;
  constexpr int64_t kMaxBatch = 4096;
  tools::BenchOptions options;
  MB_ASSIGN(options.prefill_tokens,
            parse_integers(flags.prefill.value_or("512"), "-p", 0, kMaxTokens));
  options.fit_prompts = !flags.prefill;
  std::erase(options.prefill_tokens, 0);  // -p 0: no prefill test
  MB_ASSIGN(options.depths, parse_integers(flags.depths, "-d", 0, kMaxTokens));
  MB_ASSIGN(options.batches, parse_integers(flags.batches, "-b", 1, kMaxBatch));
  options.decode_tokens = flags.decode_tokens;
  options.repetitions = flags.repetitions;
  options.arrivals = {.requests = flags.arrivals, .per_s = 0, .seed = flags.seed};
  MB_ASSIGN(options.arrivals.per_s, parse_rate(flags.rate));
  SharedOptions shared = flags.shared;
  shared.prefix_cache = flags.arrivals > 0;  // as an engine with many users has it
  MB_ASSIGN(EngineOptions engine, engine_options(shared));
  MB_ASSIGN(const std::string path, model_path(flags.shared));
  const auto line = std::make_shared<ProgressLine>(!flags.shared.quiet);
  engine.progress = [&](const Progress& p) { line->show(p); };
  engine.message = message_printer(flags.shared, line);
  MB_ASSIGN(const std::string document, tools::bench_json(path, engine, options));
  line->clear();
  MB_TRY(print_document(document, flags.shared.json));
  return 0;
}

struct PerplexityFlags {
  SharedOptions shared;
  std::string file;
  int64_t stride = 0;
  std::string save_logits;
  std::string against;
};

Result<int> perplexity(const PerplexityFlags& flags) {
  MB_TRY(check_output_apart("--save-logits", flags.save_logits, flags.shared, flags.file));
  if (flags.shared.context_tokens == 1) {
    return base::usage_error("--ctx: expected 2 or more, BOS and a token to score, got 1");
  }
  if (!flags.save_logits.empty()) MB_TRY(check_file_target(flags.save_logits));
  if (!flags.against.empty()) MB_TRY(check_npy(flags.against));
  MB_ASSIGN(const std::string text, read_file(flags.file));
  if (text.empty()) return base::usage_error("{}: expected a text, got nothing", flags.file);
  MB_ASSIGN(Engine engine, load_engine(flags.shared));
  tools::PerplexityOptions options;
  options.window_tokens = flags.shared.context_tokens;
  options.stride_tokens = flags.stride;
  options.save_logits = flags.save_logits;
  options.against = flags.against;
  const auto line = std::make_shared<ProgressLine>(!flags.shared.quiet);
  options.message = message_printer(flags.shared, line);
  MB_ASSIGN(
      const std::string document,
      tools::perplexity_json(engine, text, options, [&](const Progress& p) { line->show(p); }));
  line->clear();
  MB_TRY(print_document(document, flags.shared.json));
  return 0;
}

Result<int> list(const SharedOptions& shared) {
  MB_TRY(check_engine_options(shared));
  const tools::ModelPlaces places = model_places();
  MB_ASSIGN(const std::string document, tools::list_json(places));
  MB_ASSIGN(const base::Json parsed, base::parse_json(document, "report"));
  if (parsed.empty() && !shared.json) {
    const bool nowhere = places.models_dir.empty() && places.hf_hub.empty();
    note(shared.quiet,
         nowhere ? "nowhere to look for models: none of MARKBASE_MODELS, HF_HUB_CACHE, HF_HOME and "
                   "HOME is set"
                 : fmt::format("no models yet in {}{}{}", places.models_dir,
                               places.models_dir.empty() || places.hf_hub.empty() ? "" : " or ",
                               places.hf_hub));
    return 0;
  }
  MB_TRY(print_document(document, shared.json));
  return 0;
}

}  // namespace

Action make_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  add_shared_options(app, flags->shared, ModelArgument::kRequired, EngineUse::kPlan);
  app.add_flag("--tensors", flags->tensors, "list every tensor");
  return [flags] { return inspect(*flags); };
}

Action make_verify(CLI::App& app) {
  auto shared = std::make_shared<SharedOptions>();
  add_shared_options(app, *shared, ModelArgument::kRequired, EngineUse::kNone);
  return [shared] { return verify(*shared); };
}

Action make_doctor(CLI::App& app) {
  auto shared = std::make_shared<SharedOptions>();
  add_shared_options(app, *shared, ModelArgument::kOptional, EngineUse::kPlan);
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name == "--ctx" || name == "--kv" || name == "--prefill-chunk" || name == "--memory") {
      option->needs(app.get_option("MODEL"));
    }
  }
  return [shared] { return doctor(*shared); };
}

Action make_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  add_shared_options(app, flags->shared, ModelArgument::kRequired);
  app.add_option("-p", flags->prefill,
                 "prompt lengths to prefill: 512,4096 (0: none; default: 512, with --arrivals "
                 "less where the context is short)");
  app.add_option("-n", flags->decode_tokens, "tokens to decode (0: none; default: 128)")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("-d", flags->depths,
                 "tokens already in the context when decoding starts: 0,1024 (default: 0)");
  app.add_option("-b", flags->batches, "sequences decoded together: 1,8 (default: 1)");
  app.add_option("-r", flags->repetitions, "repetitions (default: 5)")->check(CLI::Range(1, 1000));
  CLI::Option* arrivals =
      app.add_option("--arrivals", flags->arrivals,
                     "instead: so many requests that come over time, prompts of "
                     "-p, answers of -n, at most -b at once");
  arrivals->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--rate", flags->rate,
                 "requests a second, at random times; closed (the default): the next when one is "
                 "answered")
      ->needs(arrivals);
  app.add_option("--seed", flags->seed, "of times, lengths and prompts")->needs(arrivals);
  // What starts from a depth has no arrivals.
  app.get_option("-d")->excludes(arrivals);
  return [flags] { return bench(*flags); };
}

Action make_perplexity(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  add_shared_options(app, flags->shared, ModelArgument::kRequired);
  app.add_option("-f,--file", flags->file, "the text (- for stdin)")->required();
  app.add_option("--stride", flags->stride,
                 "tokens a window moves (default: its length without BOS)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--save-logits", flags->save_logits,
                 "write log-probabilities to this file: .npy, float32 [tokens, vocab_size]");
  app.add_option("--against", flags->against, "compare with a file that --save-logits wrote");
  return [flags] { return perplexity(*flags); };
}

Action make_list(CLI::App& app) {
  auto shared = std::make_shared<SharedOptions>();
  add_shared_options(app, *shared, ModelArgument::kNone, EngineUse::kNone);
  return [shared] { return list(*shared); };
}

}  // namespace markbase::cli
